package serve

import (
	"encoding/json"
	"net/http"

	"talf/internal/version"
	"talf/serve/wire"
	"talf/serve/wire/refuse"
)

// tokenize answers as vLLM's /tokenize: a prompt or messages become token ids.
func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	body, bad := s.body(w, r)
	var p *wire.Prompt
	spelled := false
	if bad == nil {
		p, spelled, bad = wire.ParseTokenize(body)
	}
	var tokens []int32
	if bad == nil {
		tokens, bad = s.core.Encode(r.Context(), p)
	}
	if bad != nil {
		s.fail(w, bad)
		return
	}
	if tokens == nil {
		tokens = []int32{}
	}
	var pieces []string
	if spelled {
		pieces = make([]string, len(tokens))
		for i, id := range tokens {
			pieces[i] = s.core.Piece(id)
		}
	}
	s.sendJSON(w, struct {
		Count   int      `json:"count"`
		Context int      `json:"max_model_len"`
		Tokens  []int32  `json:"tokens"`
		Pieces  []string `json:"token_strs"`
	}{len(tokens), s.core.Context(), tokens, pieces})
}

// detokenize answers as vLLM's /detokenize: token ids become text.
func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	body, bad := s.body(w, r)
	var tokens []int32
	if bad == nil {
		tokens, bad = wire.ParseDetokenize(body)
	}
	// A token may be many times as long as its id, so that the body's size does not bound the text.
	if most := s.core.Context(); bad == nil && len(tokens) > most {
		bad = refuse.Invalid("tokens", "has %d tokens, want at most the model's context of %d", len(tokens), most)
	}
	var text string
	if bad == nil {
		text, bad = s.core.Decode(tokens)
	}
	if bad != nil {
		s.fail(w, bad)
		return
	}
	s.sendJSON(w, struct {
		Prompt string `json:"prompt"`
	}{text})
}

// countTokens answers as Anthropic's /v1/messages/count_tokens.
func (s *Server) countTokens(w http.ResponseWriter, r *http.Request) {
	body, bad := s.body(w, r)
	var p *wire.Prompt
	if bad == nil {
		p, bad = wire.ParseCount(body)
	}
	var tokens []int32
	if bad == nil {
		tokens, bad = s.core.Encode(r.Context(), p)
	}
	if bad != nil {
		s.fail(w, bad)
		return
	}
	s.send(w, http.StatusOK, wire.MessageTokens(len(tokens)))
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	s.sendJSON(w, version.Read())
}

func (s *Server) sendJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers
	}
	s.send(w, http.StatusOK, b)
}
