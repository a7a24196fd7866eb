package usercode

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"time"
)

// Patience is for how long somebody waits for code that should take no time: a
// method of an error, or an observer that is called.
const Patience = time.Second

// Run calls fn, and returns its error, or what it has panicked with, as an error
// whose methods can be called without care ([Sound]). What names the code in the
// message.
//
// Nothing can stop runtime.Goexit, which ends the goroutine: exited is told then,
// as the last thing that happens on it.
func Run(what func() string, fn func() error, exited func(error)) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			err = panicked(what(), value, debug.Stack())
			return
		}
		exited(fmt.Errorf("%s called runtime.Goexit\n%s", what(), debug.Stack()))
	}()
	err = Sound(fn())
	returned = true
	return err
}

// panicked makes an error of what a function has panicked with. If that is an
// error, it is in the chain.
func panicked(what string, value any, stack []byte) error {
	cause, isError := value.(error)
	if !isError {
		text, err := Ask(func() string { return fmt.Sprint(value) })
		if err != nil {
			text = fmt.Sprintf("a value of type %T, which cannot be printed", value)
		}
		return fmt.Errorf("%s panicked: %s\n%s", what, text, stack)
	}
	return fmt.Errorf("%s panicked: %w\n%s", what, Sound(cause), stack)
}

// plain prints what needs no method of the user's.
func plain(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case runtime.Error:
		return v.Error()
	}
	return fmt.Sprintf("a value of type %T", value)
}

// Apart calls fn on a goroutine of its own, and waits for it: runtime.Goexit is an
// error, too.
func Apart(what func() string, fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- Run(what, fn, func(err error) { done <- err }) }()
	return <-done
}

// Ask calls fn, which should take no time, on a goroutine of its own. The error
// says that it has panicked, ended its goroutine, or not returned for [Patience].
func Ask[T any](fn func() T) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		returned := false
		defer func() {
			if value := recover(); value != nil {
				a.err = fmt.Errorf("it panicked: %s\n%s", plain(value), debug.Stack())
			} else if !returned {
				a.err = fmt.Errorf("it called runtime.Goexit\n%s", debug.Stack())
			}
			done <- a
		}()
		a.value = fn()
		returned = true
	}()
	timer := time.NewTimer(Patience)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.value, a.err
	case <-timer.C:
		var none T
		return none, fmt.Errorf("it has not returned for %s", Patience)
	}
}
