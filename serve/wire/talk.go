package wire

import (
	"encoding/json"
	"strings"

	"talf/internal/limits"
)

// A turn is a message as chat templates expect it.
type turn struct {
	role     string
	texts    []string // lines of the content
	thoughts []string // of the assistant, before the content
	calls    []turnCall
	call     string // of a tool: the id of the call that it answers
}

// MarshalJSON writes the turn. As in OpenAI's API, the content beside calls is null if there is none.
func (t turn) MarshalJSON() ([]byte, error) {
	text := strings.Join(t.texts, "\n")
	content := &text
	if text == "" && len(t.calls) > 0 {
		content = nil
	}
	return marshal(struct {
		Role      string     `json:"role"`
		Content   *string    `json:"content"`
		Reasoning string     `json:"reasoning_content,omitempty"`
		Calls     []turnCall `json:"tool_calls,omitempty"`
		Call      string     `json:"tool_call_id,omitempty"`
	}{t.role, content, strings.Join(t.thoughts, ""), t.calls, t.call})
}

// A turnCall is a call as chat templates take it.
type turnCall struct {
	Type     string       `json:"type"`
	ID       string       `json:"id,omitempty"`
	Function turnFunction `json:"function"`
}

type turnFunction struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"` // an object
}

// A talk is a conversation that is put together from the items of a dialect.
type talk struct {
	turns []turn
	calls map[string]bool // ids
	// thought: the last turn has nothing but what was thought, and belongs to what follows.
	thought bool
}

const assistant = "assistant"

// say appends a message.
func (t *talk) say(role, text string) { t.open(role, false).texts = []string{text} }

// join is say, but a message of the role of the one before continues it.
func (t *talk) join(role, text string) {
	if turn := t.open(role, true); text != "" || len(turn.calls) == 0 {
		turn.texts = append(turn.texts, text)
	}
}

// think appends what was thought before the next message or call of the assistant.
func (t *talk) think(text string) {
	if text == "" {
		return
	}
	turn := t.open(assistant, false)
	turn.thoughts, t.thought = append(turn.thoughts, text), true
}

// ask appends a call, to the message before it if that is the assistant's. o is where it was read.
func (t *talk) ask(o *object, c turnCall) {
	turn := t.open(assistant, true)
	if len(turn.calls) == limits.ToolCalls {
		o.fail("name", "%q is called after %d calls in a row, want at most as many", c.Function.Name, limits.ToolCalls)
		return
	}
	turn.calls = append(turn.calls, c)
	if t.calls == nil {
		t.calls = map[string]bool{}
	}
	t.calls[c.ID] = true
}

// answer appends what a tool answered to the call whose id is in a field of o.
func (t *talk) answer(o *object, field, text string) {
	id := o.need(field)
	if !t.calls[id] {
		o.fail(field, "is %q, which no call before it has", id)
	}
	turn := t.open("tool", false)
	turn.texts, turn.call = []string{text}, id
}

// prefilled reports whether the last turn begins an answer.
func (t *talk) prefilled() bool {
	n := len(t.turns)
	return n > 0 && t.turns[n-1].role == assistant && len(t.turns[n-1].calls) == 0
}

// open returns the turn that goes on for a role: one that has only been thought about, with joined
// the last if it is of the role, and otherwise a new one.
func (t *talk) open(role string, joined bool) *turn {
	t.rest(role)
	n := len(t.turns)
	if !t.thought && (!joined || n == 0 || t.turns[n-1].role != role) {
		t.turns = append(t.turns, turn{role: role})
		n++
	}
	t.thought = false
	return &t.turns[n-1]
}

// rest ends what the assistant has only thought about if the next turn, if any, is not the assistant's.
func (t *talk) rest(role string) {
	if t.thought && role != assistant {
		t.turns, t.thought = t.turns[:len(t.turns)-1], false
	}
}
