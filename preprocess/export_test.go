package preprocess

// Exp is how a log-probability becomes a label.
func Exp(logp float32) float32 { return float32(min(1, exp(float64(logp)))) }
