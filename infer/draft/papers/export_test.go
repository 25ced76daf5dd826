package papers

// SequoiaTree is sequoiaTree.
var SequoiaTree = sequoiaTree

// A Recycler is the drafter of recycle.
type Recycler = recycler
