package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// screen shows how a run gets on. On a terminal the line of progress is written
// over again and again, elsewhere there is a new one each second.
type screen struct {
	out      io.Writer
	terminal bool
	open     bool // the cursor is in a line of progress
	last     time.Time
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// progress shows the line if it is time for it.
func (s *screen) progress(format string, args ...any) {
	interval := time.Second
	if s.terminal {
		interval = 100 * time.Millisecond
	}
	if time.Since(s.last) < interval {
		return
	}
	s.last = time.Now()
	line := fmt.Sprintf(format, args...)
	if s.terminal {
		fmt.Fprintf(s.out, "\r%-78s", line)
		s.open = true
		return
	}
	fmt.Fprintln(s.out, line)
}

// print shows a line that stays.
func (s *screen) print(format string, args ...any) {
	if s.open {
		fmt.Fprintln(s.out)
		s.open = false
	}
	fmt.Fprintf(s.out, format+"\n", args...)
}
