package corpus

import "log/slog"

// MaxNamed is how many unusable lines are named in a log.
const MaxNamed = 20

// BadLines names unusable lines in a log, up to MaxNamed, and counts all.
type BadLines struct {
	Log   *slog.Logger
	Count int
}

// Add names or counts a line.
func (l *BadLines) Add(b BadLine) {
	switch l.Count++; {
	case l.Count <= MaxNamed:
		l.Log.Warn("left out", "line", b.Error())
	case l.Count == MaxNamed+1:
		l.Log.Warn("further lines that are left out are only counted")
	}
}

// End logs the number of lines, if there were any.
func (l *BadLines) End() {
	if l.Count > 0 {
		l.Log.Warn("lines that could not be used", "count", l.Count)
	}
}
