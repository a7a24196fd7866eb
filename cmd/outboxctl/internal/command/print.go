package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// document is what a command prints, as text or as JSON.
type document interface {
	// text writes it for people.
	text(p *page)
}

// show prints a document.
func (a *app) show(d document) error {
	if a.json {
		encoder := json.NewEncoder(a.out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(d)
	}
	p := newPage(a.out)
	d.text(p)
	return p.end()
}

// page is aligned text. Columns are aligned within a block, which say and gap
// end.
type page struct {
	out   io.Writer
	text  bytes.Buffer
	table *tabwriter.Writer
}

func newPage(out io.Writer) *page {
	p := &page{out: out}
	p.table = tabwriter.NewWriter(&p.text, 0, 0, 2, ' ', 0)
	return p
}

// row writes the cells of a line. Whatever they hold stays in its cell.
func (p *page) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = oneLine(fmt.Sprint(cell))
	}
	_, _ = io.WriteString(p.table, strings.Join(texts, "\t")+"\n") // into a buffer
}

// lines writes a row whose text has lines of its own, such as a stack trace: one below
// the other, each of them in its cell.
func (p *page) lines(name, text string) {
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		line = strings.TrimRight(line, "\r\n")
		p.row(name, strings.ReplaceAll(line, "\t", "    "))
		name = ""
	}
}

// say writes a line that is no part of a table.
func (p *page) say(format string, args ...any) {
	_ = p.table.Flush()
	p.text.WriteString(oneLine(fmt.Sprintf(format, args...)) + "\n")
}

// raw writes a text as it is: one of ours, never one of the database's.
func (p *page) raw(text string) {
	_ = p.table.Flush()
	p.text.WriteString(text)
}

// gap writes an empty line.
func (p *page) gap() { p.say("") }

// end prints it.
func (p *page) end() error {
	_ = p.table.Flush()
	lines := strings.Split(p.text.String(), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	_, err := io.WriteString(p.out, strings.Join(lines, "\n"))
	return err
}

// oneLine shows characters that would move the cursor, or mean something to a
// terminal, as Go would write them.
func oneLine(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) || !unicode.IsPrint(r) && r != ' ' {
			b.WriteString(strings.Trim(fmt.Sprintf("%q", r), "'"))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// moment shows a time of the database.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// or returns the text, or another one in place of an empty one.
func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}
