package kern

// swigluAlpha is the factor of the sigmoid's argument in ClampedSwiGLU.
const swigluAlpha = 1.702

// ClampedSwiGLU sets x[i] = g·σ(1.702g)·(u+1) with g = min(x[i], limit) and u = up[i] within
// ±limit: the SiLU of 1.702g, divided by 1.702. It changes up.
func (f *Funcs) ClampedSwiGLU(x, up []float32, limit float32) {
	up = up[:len(x)]
	for i, g := range x {
		if g > limit {
			g = limit
		}
		x[i] = float32(swigluAlpha * g)
		u := up[i]
		if u > limit {
			u = limit
		} else if u < -limit {
			u = -limit
		}
		up[i] = float32(float32(u+1) * (1 / swigluAlpha))
	}
	f.SiLUMul(x, x, up)
}
