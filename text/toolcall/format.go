// Package toolcall knows how models call tools: the text that each family of chat templates writes
// for a call, which template writes which, the grammar of answers that call the tools of a request,
// and how such an answer, as it comes, becomes content, reasoning and calls.
package toolcall

import (
	"encoding/json"
	"strings"
)

// A Tool is a function that a model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON Schema of an object; nil: there are none
	// Strict refuses a schema that cannot be enforced. Otherwise the arguments are any object then.
	Strict bool
	JSON   json.RawMessage // as chat templates take it: {"type": "function", "function": {…}}
}

// A Call is what a model asks a tool.
type Call struct {
	Name      string
	Arguments string // a JSON object
}

// A Format is how calls are written in an answer: lead, then before, the name, middle, the
// arguments and after for each call, with between in between, and end. Mistral's formats have the
// names of its tokenizers' versions in mistral-common.
type Format struct {
	name   string
	lead   string
	before string
	middle string
	after  string
	// id is a mark that may stand between the name and middle, with an id of nine letters and digits after it.
	id string
	// between is what stands between two calls; a format that has one call only has single.
	between string
	single  bool
	end     string
	// trigger is the beginning of lead+before that no content has.
	trigger string
	// anchored calls stand where the answer begins, or nowhere.
	anchored bool
	// optional is a mark that may come before the calls of an anchored format.
	optional string
	marks    []string // that tokenizers have as tokens of their own
	channels bool     // the answer is divided into channels; of the above only name, single and marks count
	plain    bool     // no template writes it: messages have to say how it is done
}

// Marks are the texts that tokenizers have as tokens of their own, which a reader has to see even
// if they are special.
func (f *Format) Marks() []string { return append([]string{thinkOpen, thinkClose}, f.marks...) }

// Plain reports whether no template writes the format.
func (f *Format) Plain() bool { return f.plain }

// The marks around what a model thinks before it answers.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// Harmony's marks, from OpenAI's description of the format of gpt-oss.
const (
	startMark     = "<|start|>"
	channelMark   = "<|channel|>"
	messageMark   = "<|message|>"
	constrainMark = "<|constrain|>"
	endMark       = "<|end|>"
	callMark      = "<|call|>"
	returnMark    = "<|return|>"
)

// formats are tried in this order.
var formats = []*Format{
	{
		name: "deepseek", lead: "<｜tool▁calls▁begin｜>", before: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", middle: "\n```json\n", after: "\n```<｜tool▁call▁end｜>",
		between: "\n", end: "<｜tool▁calls▁end｜>", trigger: "<｜tool▁calls▁begin｜>", marks: deepseekMarks,
	},
	{
		name: "deepseek-v3.1", lead: "<｜tool▁calls▁begin｜>", before: "<｜tool▁call▁begin｜>", middle: "<｜tool▁sep｜>", after: "<｜tool▁call▁end｜>",
		end: "<｜tool▁calls▁end｜>", trigger: "<｜tool▁calls▁begin｜>", marks: deepseekMarks,
	},
	{
		name: "mistral", lead: "[TOOL_CALLS][", before: `{"name": "`, middle: `", "arguments": `, after: "}", between: ", ", end: "]",
		trigger: "[TOOL_CALLS]", marks: []string{"[TOOL_CALLS]"},
	},
	{
		name: "mistral-v11", before: "[TOOL_CALLS]", middle: "[ARGS]", id: "[CALL_ID]", trigger: "[TOOL_CALLS]", marks: []string{"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"},
	},
	{
		name: "mistral-v13", before: "[TOOL_CALLS]", middle: "[ARGS]", trigger: "[TOOL_CALLS]", marks: []string{"[TOOL_CALLS]", "[ARGS]"},
	},
	{
		name: "hermes", before: "<tool_call>\n" + `{"name": "`, middle: `", "arguments": `, after: "}\n</tool_call>", between: "\n",
		trigger: "<tool_call>", marks: []string{"<tool_call>", "</tool_call>"},
	},
	{name: "harmony", single: true, channels: true, marks: []string{startMark, channelMark, messageMark, constrainMark, endMark, callMark, returnMark}},
	{
		name: "llama3", before: `{"name": "`, middle: `", "parameters": `, after: "}", single: true,
		trigger: `{"name": "`, anchored: true, optional: "<|python_tag|>", marks: []string{"<|python_tag|>"},
	},
	{
		name: "generic", before: "<tool_call>\n" + `{"name": "`, middle: `", "arguments": `, after: "}\n</tool_call>", between: "\n",
		trigger: "<tool_call>", marks: []string{"<tool_call>", "</tool_call>"}, plain: true,
	},
}

var deepseekMarks = []string{"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}

// Write returns calls as a model writes them.
func (f *Format) Write(calls []Call) string {
	if f.channels {
		var b strings.Builder
		for i, c := range calls {
			if i > 0 {
				b.WriteString(startMark + "assistant")
			}
			b.WriteString(channelMark + commentary + " " + recipient + c.Name + " " + constrainMark + "json" + messageMark + c.Arguments + callMark)
		}
		return b.String()
	}
	var b strings.Builder
	b.WriteString(f.lead)
	for i, c := range calls {
		if i > 0 {
			b.WriteString(f.between)
		}
		b.WriteString(f.before + c.Name + f.middle + c.Arguments + f.after)
	}
	b.WriteString(f.end)
	return b.String()
}
