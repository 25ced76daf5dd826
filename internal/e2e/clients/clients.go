// Package clients asks talf serve with the clients that people use: each in its own language, as
// its documentation says. All get the text of talf generate.
//
// The tests run them if the flag -clients names the directory that the step clients of .ci/run
// installed them to.
package clients
