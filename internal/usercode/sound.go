package usercode

import (
	"errors"
	"fmt"
)

// sound is an error whose text was asked for once, and whose chain was walked once,
// so that both can be done again.
type sound struct {
	text  string
	cause error
}

func (s *sound) Error() string { return s.text }
func (s *sound) Unwrap() error { return s.cause }

// Sound returns an error with the text and the chain of err, whose methods can be
// called without care: those of err are called here, on a goroutine of its own. If
// one of them panics, as on a nil pointer in an error that is not nil, or does not
// return, the error says so and has no chain.
//
// Nil stays nil.
func Sound(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := err.(*sound); ok { // its methods are not to be called yet
		return s
	}
	text, unsound := Ask(func() string {
		steps := 0
		if !walk(err, &steps) {
			panic("its chain does not end")
		}
		return err.Error()
	})
	if unsound != nil {
		return fmt.Errorf("an error of type %T, whose methods cannot be called: %w", err, unsound)
	}
	return &sound{text, err}
}

// longestChain bounds how many errors a chain may have.
const longestChain = 10_000

// probe is what no error is.
type probe struct{}

func (*probe) Error() string { return "probe" }

// walk calls the methods of each error in a chain that errors.Is and errors.As call.
func walk(err error, steps *int) (ends bool) {
	if err == nil {
		return true
	}
	if *steps++; *steps > longestChain {
		return false
	}
	var p *probe
	if e, ok := err.(interface{ Is(error) bool }); ok {
		e.Is(p)
	}
	if e, ok := err.(interface{ As(any) bool }); ok {
		e.As(&p)
	}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		return walk(e.Unwrap(), steps)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			if !walk(one, steps) {
				return false
			}
		}
	}
	return true
}

// Is reports whether errors.Is does, of an error that nobody has looked into yet.
func Is(err, target error) bool {
	return err != nil && errors.Is(Sound(err), target)
}
