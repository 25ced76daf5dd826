package papers

// How often the next token is the r-th of a row, from the first on, of Token Recycling's table and of a draft model. They were
// counted on recordings of 30 prompts, five of each of six sets, with gsm10m and its draft models (23 November 2026); no figure is
// reported on these prompts.
const (
	recycleAccept = "0.421/0.098/0.053/0.025/0.018/0.018/0.016/0.016"
	sequoiaAccept = "0.653/0.1/0.055/0.025/0.013/0.011/0.011/0.009/0.006/0.004"
)
