// Package invariants holds checks that are on in tests and cost nothing in
// production.
//
// They are on under the race detector and with the build tag billet_invariants.
// Then a broken invariant panics: the place where it broke is worth more than a
// living test. Otherwise every function here does nothing, so a check must never
// be the thing that keeps data safe; return an error for that.
//
// Arguments are evaluated in both builds. Put costly ones under
//
//	if invariants.Enabled { … }
//
// which the compiler removes.
package invariants
