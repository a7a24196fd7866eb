package sqlstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPlanMonths(t *testing.T) {
	at := func(text string) time.Time {
		if text == "" {
			return time.Time{}
		}
		parsed, err := time.Parse(time.DateTime, text)
		require.NoError(t, err)
		return parsed
	}
	for _, test := range []struct {
		name              string
		from, newest, now string
		want              []string // name, and the end of the range
		bound             string
	}{
		{"the next month is due", "2026-03-01 00:00:00", "", "2025-12-01 00:00:00",
			[]string{"p2026_03 until 2026-04-01"}, ""},
		{"several are", "2026-02-01 00:00:00", "", "2026-01-31 23:59:59",
			[]string{"p2026_02 until 2026-03-01", "p2026_03 until 2026-04-01", "p2026_04 until 2026-05-01"}, ""},
		{"nothing is", "2026-05-01 00:00:00", "", "2026-01-31 23:59:59", nil, ""},
		{"idle for half a year, and empty", "2026-01-01 00:00:00", "", "2026-06-15 12:00:00",
			[]string{"p2026_01 until 2026-07-01", "p2026_07 until 2026-08-01", "p2026_08 until 2026-09-01", "p2026_09 until 2026-10-01"}, ""},
		{"idle for half a year, then used", "2026-01-01 00:00:00", "2026-06-14 00:00:00", "2026-06-15 12:00:00",
			[]string{"p2026_01 until 2026-07-01", "p2026_07 until 2026-08-01", "p2026_08 until 2026-09-01", "p2026_09 until 2026-10-01"}, ""},
		{"an event of the future", "2026-02-01 00:00:00", "2026-04-01 00:00:00", "2026-01-15 12:00:00",
			[]string{"p2026_02 until 2026-05-01"}, ""},
		{"an event of the far future", "2026-02-01 00:00:00", "2031-04-01 00:00:00", "2026-01-15 12:00:00",
			[]string{"p2026_02 until 2031-05-01"}, ""},
		{"bounds that are no months", "2026-02-10 00:00:00", "", "2026-01-15 12:00:00",
			[]string{"p2026_02_10 until 2026-03-01", "p2026_03 until 2026-04-01", "p2026_04 until 2026-05-01"}, ""},
		{"over the end of a year", "2025-12-01 00:00:00", "", "2025-11-30 00:00:00",
			[]string{"p2025_12 until 2026-01-01", "p2026_01 until 2026-02-01", "p2026_02 until 2026-03-01"}, ""},
		{"no lower bound", "", "2026-06-14 00:00:00", "2026-06-15 12:00:00",
			[]string{"p2026_06 until 2026-07-01", "p2026_07 until 2026-08-01", "p2026_08 until 2026-09-01", "p2026_09 until 2026-10-01"}, ""},
		{"an end that an earlier run has left", "2026-01-01 00:00:00", "2026-06-14 00:00:00", "2026-06-15 12:00:00",
			[]string{"p2026_01 until 2026-08-01", "p2026_08 until 2026-09-01", "p2026_09 until 2026-10-01"}, "2026-08-01 00:00:00"},
		{"an end that has passed", "2026-01-01 00:00:00", "2026-03-14 00:00:00", "2026-06-15 12:00:00",
			[]string{"p2026_01 until 2026-04-01", "p2026_04 until 2026-05-01", "p2026_05 until 2026-06-01", "p2026_06 until 2026-07-01",
				"p2026_07 until 2026-08-01", "p2026_08 until 2026-09-01", "p2026_09 until 2026-10-01"}, "2026-04-01 00:00:00"},
		{"an end before an event of the future", "2026-05-01 00:00:00", "2027-03-14 00:00:00", "2026-06-15 12:00:00",
			[]string{"p2026_05 until 2027-04-01"}, "2026-09-01 00:00:00"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			edge := at(test.from)
			for _, p := range planMonths(at(test.from), at(test.newest), at(test.bound), at(test.now), 3) {
				require.Equal(t, edge, p.From, "no gap")
				edge = p.To
				got = append(got, p.Name+" until "+p.To.Format(time.DateOnly))
			}
			require.Equal(t, test.want, got)
		})
	}
}

// A month of the past that is missing has been dropped. One of now or later takes no
// events.
func TestPlanHoles(t *testing.T) {
	month := func(year int, m time.Month) time.Time { return time.Date(year, m, 1, 0, 0, 0, 0, time.UTC) }
	now := time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)
	var existing []partition
	for _, edges := range [][2]time.Time{
		{{}, month(2025, 1)}, {month(2025, 3), month(2025, 4)}, {month(2026, 7), month(2026, 8)}, {month(2026, 10), {}},
	} {
		var p partition
		p.From, p.To = edges[0], edges[1]
		existing = append(existing, p)
	}
	var got []string
	for _, p := range planHoles(existing, now) {
		got = append(got, p.Name+" until "+p.To.Format(time.DateOnly))
	}
	require.Equal(t, []string{"p2026_06 until 2026-07-01", "p2026_08 until 2026-09-01", "p2026_09 until 2026-10-01"}, got)
	require.Empty(t, planHoles(existing[:1], now))
}
