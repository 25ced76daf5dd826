package kern

// PanelLen returns the elements of a matrix of outs outputs and depth k in
// panels [⌈outs/Panel⌉][k][Panel].
func PanelLen(outs, k int) int { return (outs + Panel - 1) / Panel * Panel * k }

// packStep is a cache line of float32: a source row's line is read once.
const packStep = 16

// PackRows packs the first k columns of src [rows][ldsrc] into dst as panels
// [⌈rows/Panel⌉][k][Panel]: row o of src becomes output o. Outputs beyond rows are zero. It
// writes PanelLen(rows, k) elements.
func PackRows(dst, src []float32, rows, k, ldsrc int) {
	for o := 0; o < rows; o += Panel {
		p := dst[o*k:][:Panel*k]
		n := min(Panel, rows-o)
		if n < Panel {
			clear(p)
		}
		packPanel(p, src[o*ldsrc:], n, k, ldsrc)
	}
}

// packPanel transposes n ≤ Panel rows into one panel.
func packPanel(p, src []float32, n, k, ldsrc int) {
	i := 0
	if n == Panel {
		i = transpose(p, src, k, ldsrc)
	}
	for ; i+packStep <= k; i += packStep {
		d := (*[packStep * Panel]float32)(p[i*Panel:])
		for j := range n {
			s := (*[packStep]float32)(src[j*ldsrc+i:])
			q := d[j:]
			for t, v := range s {
				q[t*Panel] = v
			}
		}
	}
	for ; i < k; i++ {
		for j := range n {
			p[i*Panel+j] = src[j*ldsrc+i]
		}
	}
}

// PackCols packs the first cols columns of src [k][ldsrc] into dst as panels
// [⌈cols/Panel⌉][k][Panel]: column o of src becomes output o. Outputs beyond cols are zero. It
// writes PanelLen(cols, k) elements.
func PackCols(dst, src []float32, k, cols, ldsrc int) {
	for o := 0; o < cols; o += Panel {
		p := dst[o*k:][:Panel*k]
		if n := cols - o; n < Panel {
			for i := range k {
				d := p[i*Panel:][:Panel]
				clear(d[copy(d, src[i*ldsrc+o:][:n]):])
			}
			continue
		}
		for i := range k {
			*(*[Panel]float32)(p[i*Panel:]) = *(*[Panel]float32)(src[i*ldsrc+o:])
		}
	}
}
