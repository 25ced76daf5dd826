// Package papers holds the methods that replicate a publication: baselines of the papers that talf
// implements, and methods that lose to others on every machine on which docs/measurements/methods.md
// measured them. They conform like all others, so that papers' tables can be repeated.
package papers

import "talf/infer/draft/method"

// Methods lists them, by what they need.
func Methods() []method.Method {
	all := []method.Method{
		linearMethod(), fixedMethod(), sequoiaMethod(), jetspecMethod(), // a draft model
		lookaheadMethod(), recycleMethod(), isotropicMethod(), restMethod(), // none
	}
	for i := range all {
		all[i].Paper = true
	}
	return all
}
