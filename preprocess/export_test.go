package preprocess

// Exp converts a log-probability to a label.
func Exp(logp float32) float32 { return float32(min(1, exp(float64(logp)))) }
