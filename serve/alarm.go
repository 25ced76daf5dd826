package serve

import (
	"log/slog"
	"math"
	"net/http"
	"sync"
	"time"

	"talf/infer/loop"
	"talf/serve/wire/refuse"
)

// An alarm says when drafts begin to cost more time than they save, and when they no longer do.
type alarm struct {
	stats func() loop.Stats // nil: nothing is known

	mu   sync.Mutex
	next time.Time // when to look again
	on   bool
}

// alarmEvery is how often the alarm is looked at, at most: requests may be short.
const alarmEvery = time.Second

// look writes a line of the log if the alarm has gone on or off since the last call.
func (a *alarm) look(now time.Time, log *slog.Logger) {
	if a.stats == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.next) {
		return
	}
	a.next = now.Add(alarmEvery)
	p := a.stats().Pace
	if p.Losing == a.on {
		return
	}
	if a.on = p.Losing; a.on {
		log.Warn("drafting is slower than plain decoding: the draft model may not fit what is asked", "tau", round2(p.Tau), "even_at", round2(p.Even), "drafted", round2(p.Drafted))
	} else {
		log.Info("drafting is no longer slower than plain decoding", "tau", round2(p.Tau), "even_at", round2(p.Even), "drafted", round2(p.Drafted))
	}
}

func round2(x float64) float64 { return math.Round(100*x) / 100 }

// readiness is the body of /ready. A server whose drafts lose is ready: its answers are right, and
// come more slowly than they could.
type readiness struct {
	Status   string `json:"status"`
	Running  int    `json:"running"`
	Waiting  int    `json:"waiting"`
	Drafting *pace  `json:"drafting,omitempty"` // once it is measured
}

// A pace is loop.Pace as clients read it.
type pace struct {
	Tau     float64 `json:"tau"`
	Even    float64 `json:"even_at"` // the τ below which drafts cost time
	Drafted float64 `json:"drafted"` // share of rounds
	Speedup float64 `json:"speedup"` // against plain decoding
	Alarm   string  `json:"alarm,omitempty"`
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if s.load.draining() {
		s.fail(w, refuse.Unavailable("the server is draining"))
		return
	}
	r := readiness{Status: "ready"}
	if s.alarm.stats != nil {
		st := s.alarm.stats()
		r.Running, r.Waiting = st.Running, st.Waiting
		if p := &st.Pace; p.Even > 0 {
			r.Drafting = &pace{Tau: round2(p.Tau), Even: round2(p.Even), Drafted: round2(p.Drafted), Speedup: round2(p.Speedup())}
			if p.Losing {
				r.Drafting.Alarm = "drafting is slower than plain decoding"
			}
		}
	}
	s.sendJSON(w, r)
}
