package command

import (
	"bufio"
	"errors"
	"fmt"
	"strings"
)

// errNotConfirmed says that the operator did not agree, so nothing was done.
var errNotConfirmed = errors.New("nothing was done: it was not confirmed")

// confirm asks the operator to type a word, unless he has said --yes.
func (a *app) confirm(yes bool, word string) error {
	if yes {
		return nil
	}
	if a.json { // whoever reads that types nothing
		return fmt.Errorf("%w; say --yes", errNotConfirmed)
	}
	if _, err := fmt.Fprintf(a.out, "\nType %s to go on: ", word); err != nil {
		return err
	}
	typed, _ := bufio.NewReader(a.in).ReadString('\n')
	if _, err := fmt.Fprintln(a.out); err != nil {
		return err
	}
	if strings.TrimSpace(typed) != word {
		return fmt.Errorf("%w; type the word, or say --yes", errNotConfirmed)
	}
	return nil
}
