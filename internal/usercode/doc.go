// Package usercode is the one way in which the library calls code of its users, and
// looks into their errors. Such code may panic, end its goroutine with
// [runtime.Goexit], or not return: that stays with the call.
package usercode
