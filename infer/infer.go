// Package infer decodes with draft trees: a drafter proposes a tree, the target
// model scores all of it in one pass, a verifier keeps a path, and the output is
// what the target alone would have written.
//
// The parts meet in small contracts. A Drafter is the policy of one sequence and
// never runs a model; a Source is a draft model that answers for all sequences
// in one pass; a Target scores trees; a Verifier is a pure function of a
// proposal, the target's rows and a Chance, which is the only randomness. The
// Engine drives them: Step is one round for any number of sequences, and
// generating is a loop over Step.
//
// Greedy output is the same bytes with every drafter. Sampled output is too,
// under the verifier "target": its draws are keyed by seed and position.
package infer

import (
	"context"

	"talf/compute"
	"talf/model"
	"talf/tree"
)

// A SeqID names a sequence to targets and sources. The engine assigns it.
type SeqID uint64

// A Dist is a probability distribution over the vocabulary: [vocab], sums to 1 within rounding,
// after temperature and truncation. It belongs to its creator.
type Dist []float64

// A Candidate is a token with its log-softmax value at temperature 1.
type Candidate struct {
	Token   int32
	LogProb float32
}

// A Row is a source's prediction for one node.
type Row = tree.Row

// Rows are a target's raw results for one tree, read when asked. They are valid
// until the target's next Score.
type Rows interface {
	// Logits copies node n's logits [vocab] to dst.
	Logits(dst []float32, n int)
	// Argmax is node n's most likely next token, ties to the lower id.
	Argmax(n int) int32
	// TopK appends node n's k most likely next tokens, best first, ties to the
	// lower id.
	TopK(dst []Candidate, n, k int) []Candidate
	// Rank appends the tokens of TopK to dst, without their probabilities, which make up most of
	// TopK's cost.
	Rank(dst []int32, n, k int) []int32
	// Hidden is a handle to node n's last hidden state, with those of earlier layers
	// that the target's model taps; zero if the target has none.
	Hidden(n int) model.Feature
	// Err returns why no token can be chosen from some row, a *model.NonFiniteError; nil if one can
	// be, or nobody checks.
	Err() error
	// Drawn returns the token that d asks for after node n, if the pass was asked for it and has it.
	Drawn(n int, d compute.Draw) (token int32, ok bool)
}

// Tokens appends the tokens of candidates to dst: Rank for rows that have no cheaper way.
func Tokens(dst []int32, candidates []Candidate) []int32 {
	for _, c := range candidates {
		dst = append(dst, c.Token)
	}
	return dst
}

// Scores are the rows of one scored tree as a request sees them, computed on demand. They are
// valid until the round ends.
type Scores interface {
	// Argmax is the most likely token after n, the request's penalties applied
	// with the path to n as context; ties go to the lower id.
	Argmax(n int) int32
	// Dist is the distribution that the token after n is drawn from: penalties, temperature and
	// truncation applied, with the path to n as context.
	Dist(n int) Dist
	// TopK returns raw candidates, for drafters that learn from the target's rows:
	// none if a target that replays a recording lacks the row. The slice is valid
	// until the next call.
	TopK(n, k int) []Candidate
	// Rank appends the tokens of TopK to dst, at less cost.
	Rank(dst []int32, n, k int) []int32
	// Hidden is a handle to node n's last hidden state, as Rows has it.
	Hidden(n int) model.Feature
}

// A Shape is what the engine needs to know about a target.
type Shape struct {
	Vocab  int
	MaxLen int     // positions; no sequence grows longer
	Switch int     // tokens of a text, root included, beyond which it is read again, since all positions are others then; 0: none
	EOS    []int32 // tokens that end a sequence
}

// Unswitched returns the shape of a target whose texts end where they would be read again.
func (s Shape) Unswitched() Shape {
	if s.Switch > 0 {
		s.MaxLen, s.Switch = min(s.MaxLen, s.Switch), 0
	}
	return s
}

// A Job is one tree to score below a sequence's committed positions.
type Job struct {
	ID   SeqID
	Tree *tree.Tree
	Want model.Want // which nodes' logits may be read
	// Draws, if not nil, are tokens that will be asked for after nodes, one for each whose logits may be read. Only a
	// target with Abilities.Draws is given any.
	Draws []compute.Draw
}

// A Target is the model whose output is reproduced.
type Target interface {
	Shape() Shape
	// Match returns how many leading tokens of prompt are in a kept prefix that can be continued after them.
	Match(prompt []int32) int
	// Open starts sequence id with the first keep tokens of prompt from a kept
	// prefix; keep is at most what Match returned. It runs nothing.
	Open(id SeqID, prompt []int32, keep int) error
	// Score runs every job in one pass. After an error no tree is scored, and
	// the sequences are as before. If the pool of keys and values is too small, the error wraps
	// model.ErrKVFull.
	Score(ctx context.Context, jobs []Job) ([]Rows, error)
	// Commit appends path (nodes of the tree last scored, root first) to id and
	// forgets the rest of that tree.
	Commit(id SeqID, path []int) error
	Close(id SeqID)
	// KV describes the pool of keys and values; kept prefixes count as free. Total is 0 if
	// there is none.
	KV() model.KVStats
	// Abilities returns what this target can do beyond this interface. It always returns the same.
	Abilities() Abilities
}

// A Proposal is one round's draft tree and how its children were drawn: a
// verifier can be lossless only if it knows that.
//
// The engine sets Pos, MaxNodes, MaxDepth, Left and Least, and Tree to the root alone with room for MaxNodes; the
// drafter adds nodes or substitutes a tree of its own.
type Proposal struct {
	Tree     *tree.Tree
	Pos      int     // sequence position of the root
	MaxNodes int     // largest tree, root counted
	MaxDepth int     // largest depth; 0 asks for the root alone, and in Observe says that the drafter was not asked
	Left     int     // tokens that the sequence may still emit; beyond MaxDepth+1 if a tree may not reach that far
	Least    float64 // probability of a path from which on its last node may be worth a row; a drafter may leave out others

	// Live nodes [0,Live) may be accepted; the others are scored only. 0 means all.
	Live int
	// Q is what n's children were drawn from, in the order they were added; nil
	// if they were chosen without randomness. Replace: with replacement.
	Q       func(n int) Dist
	Replace bool

	// LogV is the draft's natural log probability of the path to each node, 0 for
	// the root; nil if the drafter does not say. Traces show it.
	LogV []float64

	// Work is the tree whose nodes a source is asked for; nil means Tree. Asked
	// nodes are always its tail.
	Work *tree.Tree
	// Width is the number of next tokens wanted per asked node; Full asks for
	// whole rows of logits too.
	Width int
	Full  bool
	// Allow, if not nil, says which tokens may follow a node of that tree, as in Ask; May says, for less, whether
	// one may follow a node of any tree below the round's root.
	Allow func(n int) []uint64
	May   func(t *tree.Tree, n int, token int32) bool
	// Reach is the sum of the draft's path probabilities of the nodes asked for last, 0 if the
	// drafter does not say.
	Reach float64
}

// A Choice is a way to choose the children of a node. A verifier is lossless with some of them.
type Choice uint8

// The ways.
const (
	Chosen   Choice = iota // without randomness
	Distinct               // drawn from the draft without replacement
	Repeated               // drawn from the draft with replacement
)

func (d Choice) String() string {
	return [...]string{"chosen without randomness", "drawn without replacement", "drawn with replacement"}[d]
}

// Choice returns how the children of p's nodes were chosen.
func (p *Proposal) Choice() Choice {
	switch {
	case p.Q == nil:
		return Chosen
	case p.Replace:
		return Repeated
	}
	return Distinct
}

// Chain reports whether no node has two children that may be accepted.
func (p *Proposal) Chain() bool {
	for n := range p.LiveNodes() {
		if p.Tree.Parent(n) != n-1 {
			return false
		}
	}
	return true
}

// LiveNodes returns how many nodes may be accepted.
func (p *Proposal) LiveNodes() int {
	if p.Live > 0 {
		return p.Live
	}
	return p.Tree.Len()
}

// A Drafter proposes trees for one sequence. It never runs a model: it asks, and
// the engine batches what all sequences ask. Implementations live in infer/draft
// and must pass drafttest.Run.
type Drafter interface {
	// Start begins a sequence. A drafter may keep what it learned from earlier ones: the output
	// does not depend on it.
	Start(prompt []int32) error
	// Grow is first called with nil rows, which begins a round even if the last one was
	// interrupted, and then with the rows of the nodes it asked for, until it asks for none. It
	// draws only from c.
	Grow(p *Proposal, rows []Row, c Chance) (ask []int, err error)
	// Observe reports the verdict on a scored tree: of rounds, and of the chunks of the prompt as chains.
	// Scores of a prompt chunk can be read only if the drafter harvests. Rounds that a controller made it
	// skip come as one chain with a MaxDepth of 0, before its next call or when it is closed; their rows no
	// longer exist.
	Observe(p Proposal, v Verdict, s Scores) error
	// Traits says what else the drafter does; it always returns the same. The engine calls it
	// once for every sequence, before Start.
	Traits() Traits
}

// Traits are what a drafter does besides drafting. The zero value does nothing else.
// A drafter that wraps others must account for all of their traits.
type Traits struct {
	Harvest Harvest
	Control Control
	Origins Origins
	// Finish, if not nil, may be called in place of the Grow that answers an ask: it ends the
	// round's tree with what has been drafted so far.
	Finish func(p *Proposal) error
	// End, if not nil, is called once when a sequence that was started is closed, whether or not
	// its output has ended. It is not called if the engine has given the drafter up.
	End func()
}

// A Harvest says whether a drafter reads the target's rows of the prompt.
type Harvest uint8

// The ways.
const (
	Unread Harvest = iota // it does not
	Once                  // it may reuse what earlier sequences taught: rows of a prefix that the target kept from one of them are not needed again
	Anew                  // it reads all of them
)

// Origins name what nodes are drafted from, for benchmarks and controllers that tell apart what each contributes:
// a chain from the context is "spine", and the nodes that a table of transitions adds are
// "branch". Of is the index of the name of node n, which is not the root, in the tree
// that was proposed last; nil: all are of the same.
type Origins struct {
	Names []string
	Of    func(n int) int
}

// An Ask is what one sequence wants of a source: rows of nodes [From,Len) of
// Tree. From = 0 begins a round, with the root alone.
type Ask struct {
	ID    SeqID
	Tree  *tree.Tree
	From  int
	Width int
	Full  bool
	// Allow, if not nil, returns the tokens that may follow node n: bit i%64 of word i/64 is token i's,
	// and tokens beyond its words may not; nil: all may. The slice is valid until the next call.
	Allow func(n int) []uint64
	// Without a Tree the source only reads up to Width of the tokens that were committed, and answers no row.
}

// Nodes is how many nodes the tree has, 0 if there is none.
func (a *Ask) Nodes() int {
	if a.Tree == nil {
		return 0
	}
	return a.Tree.Len()
}

// A Source is a draft model with its own KV store: an EAGLE-style head or a
// small language model. Accepted entries are reused, the others rolled back.
type Source interface {
	// Match and Open are as in Target. If a source keeps less than the target, the target
	// computes the difference again.
	Match(prompt []int32) int
	Open(id SeqID, prompt []int32, keep int) error
	// Rows answers all asks in one pass, in order: the rows of asks[0]'s nodes,
	// then those of asks[1]'s. Committed tokens of the sequences that ask, which have not run yet, join the
	// pass. Rows do not depend on when they do.
	//
	// Where an ask says what may follow, rows should hold nothing else: log probabilities are those
	// among what may, the logits of all others are −∞, and a row is empty if nothing that may follow has
	// mass. A source that does without loses drafts, since other candidates are dropped later.
	Rows(ctx context.Context, asks []Ask) ([]Row, error)
	// Commit takes the verdict on a scored tree, with the target's hidden states, before the
	// target's next pass.
	Commit(id SeqID, p Proposal, v Verdict, s Scores) error
	// Backlog returns how many committed tokens of a sequence, its root included, are still to be read. They are with
	// its next ask.
	Backlog(id SeqID) int
	Close(id SeqID)
	// Abilities returns what this source can do beyond this interface. It always returns the same.
	Abilities() Abilities
}

// A Verdict is the part of a proposal that the target keeps.
type Verdict struct {
	Path []int // accepted nodes, root first; never empty
	Next int32 // the target's own token after Path
}

// A Round is a scored proposal and its verdict, for observers. It is valid during the call.
type Round struct {
	Proposal *Proposal
	Scores   Scores
	Verdict  Verdict // of the whole proposal
	Kept     int     // tokens emitted: all of the verdict's, unless the output ends earlier
}

// A Verifier chooses a path. It is a pure function of its arguments; the
// verdict's Path belongs to it until its next call. One verifier serves one
// sequence at a time.
type Verifier interface {
	Verify(p Proposal, s Scores, c Chance) (Verdict, error)
	// Fits says why the output would not follow the target if children were chosen by d; chain
	// says that no node has two. nil means that it would. The engine ends a sequence whose
	// proposals do not fit.
	Fits(d Choice, chain bool) error
}

// A Chance is the only source of randomness for drafters and verifiers. Tests
// enumerate the production code with an implementation that takes every branch.
type Chance interface {
	// Accept is true with probability p.
	Accept(p float64) bool
	// Draw returns a token drawn from d, which has mass but need not be normalised;
	// pos is the sequence position that the token is drawn for.
	Draw(pos int, d Dist) int32
}

// A Processor turns raw logits into the distribution that a request decodes from.
// Context is all tokens before the next one: prompt, output and the node's path.
type Processor interface {
	// Argmax may overwrite logits.
	Argmax(logits []float32, context []int32) int32
	// Dist may overwrite logits and fills dst [vocab].
	Dist(dst Dist, logits []float32, context []int32)
	// Plain says that Argmax is that of the raw logits whatever the context, so that the logits
	// need not be read.
	Plain() bool
	// Abilities returns what this processor can do beyond this interface. It always returns the same.
	Abilities() ProcessorAbilities
}
