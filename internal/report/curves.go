package report

import (
	"slices"

	"talf/infer"
	"talf/internal/stats"
	"talf/train"
)

// mostBins bounds the points of a curve of training steps.
const mostBins = 120

func lossOf(p *train.Progress) float64 { return p.Loss }
func normOf(p *train.Progress) float64 { return p.Norm }
func rateOf(p *train.Progress) float64 { return p.LR }

func paceOf(p *train.Progress) float64 {
	if p.Seconds <= 0 {
		return 0
	}
	return float64(p.Positions) / p.Seconds
}

// binned is the line with a point for the mean of some steps that follow each other in a stage; with
// a band, of their middle 90%.
func (l line) binned(steps []train.Progress, of func(*train.Progress) float64, band bool) line {
	l.Band = band
	size := (len(steps) + mostBins - 1) / mostBins
	for at := 0; at < len(steps); {
		end := at + 1
		for end < len(steps) && end-at < size && steps[end].Stage == steps[at].Stage {
			end++
		}
		var xs []float64
		sum, step := 0.0, 0.0
		for i := at; i < end; i++ {
			v := of(&steps[i])
			xs = append(xs, v)
			sum, step = sum+v, step+float64(steps[i].Step)
		}
		n := float64(end - at)
		l.X, l.Y = append(l.X, step/n), append(l.Y, sum/n)
		if band {
			slices.Sort(xs)
			l.Low, l.High = append(l.Low, stats.Quantile(xs, 0.05)), append(l.High, stats.Quantile(xs, 0.95))
		}
		at = end
	}
	return l
}

// mostRates bounds the depths and ranks of a chart.
const mostRates = 12

// rates is the line with the shares kept by depth or rank, from 1, with intervals if there are
// any.
func (l line) rates(with []stats.Interval, without []infer.Rate) line {
	for i, x := range with {
		l.X, l.Y = append(l.X, float64(i+1)), append(l.Y, x.Value)
		l.Low, l.High = append(l.Low, x.Low), append(l.High, x.High)
	}
	if with != nil {
		return l
	}
	for d := 1; d < len(without) && d <= mostRates; d++ {
		if without[d].Tried > 0 {
			l.X, l.Y = append(l.X, float64(d)), append(l.Y, without[d].Value())
		}
	}
	return l
}
