package ctl

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

var (
	instants  = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z`)
	dates     = regexp.MustCompile(`\b\d{4}-\d\d-\d\d(?:[^T\d]|$)`)
	months    = regexp.MustCompile(`(?:\b|_)p\d{4}_\d\d(?:_\d\d)?\b`) // names of partitions
	uuids     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
	pids      = regexp.MustCompile(`\bpid \d+`)
	durations = regexp.MustCompile(`\b(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)?(?:µs|ms|s)\b`)
	clients   = regexp.MustCompile(`[a-z]+@[a-z0-9.]+(?::\d+)?`)
	owners    = regexp.MustCompile(`[A-Za-z0-9_.-]+/\d+/` + uuids.String())
)

// today is the day of every golden file.
var today = time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)

// normalized replaces what differs from run to run, and aligns the columns anew.
// Times are as far from today as they are from now, in whole hours.
func normalized(text string) string {
	now := time.Now().UTC()
	text = instants.ReplaceAllStringFunc(text, func(m string) string {
		at, err := time.Parse(time.RFC3339Nano, m)
		if err != nil {
			return m
		}
		return moved(at, now).Format("2006-01-02T15:04:05.000000Z")
	})
	text = dates.ReplaceAllStringFunc(text, func(m string) string {
		at, err := time.Parse(time.DateOnly, m[:len(time.DateOnly)])
		if err != nil {
			return m
		}
		return moved(at, now).Format(time.DateOnly) + m[len(time.DateOnly):]
	})
	text = months.ReplaceAllStringFunc(text, func(m string) string {
		table, name, _ := strings.Cut(m, "p")
		layout := "2006_01_02"[:len(name)]
		at, err := time.Parse(layout, name)
		if err != nil {
			return m
		}
		return table + "p" + moved(at, now).Format(layout)
	})
	text = numbered(text, owners, func(n int) string { return fmt.Sprintf("iam-%d", n) })
	text = numbered(text, uuids, func(n int) string { return fmt.Sprintf("019ad3a1-5b7c-7000-8000-%012d", n) })
	text = pids.ReplaceAllString(text, "pid 4711")
	text = durations.ReplaceAllString(text, "3s")
	text = clients.ReplaceAllString(text, "iam@10.0.0.7:50312")
	return aligned(text)
}

// moved returns a time as far from today as at is from now. A bound of a partition
// stays one, and what is years ago is where the test put it.
func moved(at, now time.Time) time.Time {
	distance := at.Sub(now)
	switch far := distance.Abs(); {
	case far > 400*24*time.Hour:
		return at
	case at.Equal(at.Truncate(24 * time.Hour)):
		months := (at.Year()-now.Year())*12 + int(at.Month()-now.Month())
		return time.Date(today.Year(), today.Month()+time.Month(months), at.Day(), 0, 0, 0, 0, time.UTC)
	}
	return today.Add(distance.Round(time.Hour))
}

// numbered replaces each distinct text by one for its number, in the order of
// appearance.
func numbered(text string, pattern *regexp.Regexp, replacement func(int) string) string {
	var found []string
	return pattern.ReplaceAllStringFunc(text, func(m string) string {
		if !slices.Contains(found, m) {
			found = append(found, m)
		}
		return replacement(1 + slices.Index(found, m))
	})
}

var gaps = regexp.MustCompile(`  +`)

// aligned tabulates lines whose cells stand two blanks apart.
func aligned(text string) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "$") || !gaps.MatchString(line) {
			_ = w.Flush()
			out.WriteString(line + "\n")
			continue
		}
		_, _ = fmt.Fprintln(w, gaps.ReplaceAllString(line, "\t"))
	}
	_ = w.Flush()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n") + "\n"
}
