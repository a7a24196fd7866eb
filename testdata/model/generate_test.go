package model

import (
	"slices"
	"time"

	"pgregory.net/rapid"
)

// The generators. What comes first in a list is what rapid shrinks to.

var (
	specs = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) spec {
		return spec{
			account:   rapid.SampledFrom([]int{0, 0, 1}).Draw(t, ""),
			aggregate: rapid.IntRange(0, 2).Draw(t, ""),
			kind:      rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, ""),
		}
	}), 1, 3)
	configs = rapid.Custom(func(t *rapid.T) config {
		return config{
			upgraded: rapid.Bool().Draw(t, ""),
			width:    rapid.SampledFrom([]int{1, 4}).Draw(t, ""),
			window:   rapid.SampledFrom([]int{0, 0, 2}).Draw(t, ""),
		}
	})
	replicas = rapid.IntRange(0, 2)
	// calls are 0, all, half of the time.
	calls  = rapid.OneOf(rapid.Just(0), rapid.IntRange(1, 60))
	seeds  = rapid.OneOf(rapid.Just(0), rapid.IntRange(0, 1<<20))
	passes = rapid.Custom(func(t *rapid.T) pass {
		return pass{replicas.Draw(t, ""), rapid.SampledFrom([]int{100, 1, 2, 3}).Draw(t, ""), calls.Draw(t, ""), seeds.Draw(t, "")}
	})
	back  = rapid.IntRange(0, 12)
	times = rapid.SampledFrom([]time.Duration{time.Second, 4 * time.Second, lease + time.Second, 2 * time.Minute})
)

// choice is an operation, and how often it is drawn.
type choice struct {
	weight int
	draw   func(t *rapid.T) operation
}

var choices = []choice{
	{6, func(t *rapid.T) operation {
		return publish{specs.Draw(t, ""), rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "")}
	}},
	{3, func(t *rapid.T) operation { return begin{specs.Draw(t, "")} }},
	{1, func(t *rapid.T) operation { return more{replicas.Draw(t, ""), specs.Draw(t, "")} }},
	{3, func(t *rapid.T) operation {
		return end{replicas.Draw(t, ""), rapid.SampledFrom([]bool{false, false, true}).Draw(t, "")}
	}},
	{6, func(t *rapid.T) operation { return passes.Draw(t, "") }},
	{4, func(t *rapid.T) operation { return takeOver{passes.Draw(t, "")} }},
	{3, func(t *rapid.T) operation {
		return poll{replicas.Draw(t, ""), rapid.SampledFrom([]int{100, 1, 2}).Draw(t, ""), calls.Draw(t, ""), seeds.Draw(t, "")}
	}},
	{8, func(t *rapid.T) operation { return advance{replicas.Draw(t, ""), calls.Draw(t, ""), seeds.Draw(t, "")} }},
	{1, func(t *rapid.T) operation { return cancel{replicas.Draw(t, ""), calls.Draw(t, ""), seeds.Draw(t, "")} }},
	{2, func(t *rapid.T) operation {
		return fault{replicas.Draw(t, ""), seeds.Draw(t, ""), rapid.Bool().Draw(t, "")}
	}},
	{2, func(t *rapid.T) operation { return crash{replicas.Draw(t, "")} }},
	{2, func(t *rapid.T) operation { return deploy{replicas.Draw(t, ""), configs.Draw(t, "")} }},
	{3, func(t *rapid.T) operation {
		return spoil{back.Draw(t, ""), rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, ""),
			rapid.SampledFrom([]string{"error", "permanent", "panic", "exit", "transient", "kill"}).Draw(t, ""), rapid.IntRange(1, 5).Draw(t, "")}
	}},
	{3, func(t *rapid.T) operation { return pause{times.Draw(t, "")} }},
	{3, func(t *rapid.T) operation {
		return move{back.Draw(t, ""), rapid.SampledFrom([]bool{false, false, false, true}).Draw(t, "")}
	}},
	{2, func(t *rapid.T) operation {
		return replay{replicas.Draw(t, ""), back.Draw(t, ""), calls.Draw(t, ""), seeds.Draw(t, "")}
	}},
	{1, func(t *rapid.T) operation { return rewind{back.Draw(t, ""), rapid.Bool().Draw(t, "")} }},
}

// rare operations are those that not every backend can do.
var (
	aging = []choice{
		{1, func(*rapid.T) operation { return pause{25 * time.Hour} }},
		{1, func(t *rapid.T) operation {
			return retain{rapid.SampledFrom([]time.Duration{0, 24 * time.Hour}).Draw(t, "")}
		}},
	}
	straying = []choice{
		{1, func(t *rapid.T) operation {
			return insert{rapid.SampledFrom([]time.Duration{0, time.Second, 15 * time.Second, 3 * time.Minute}).Draw(t, ""), specs.Draw(t, "")[0]}
		}},
	}
	setting = []choice{
		{1, func(t *rapid.T) operation {
			return step{rapid.SampledFrom([]time.Duration{-time.Second, -time.Minute, time.Minute}).Draw(t, "")}
		}},
	}
)

// dying makes many dead letters, and has them replayed.
var dying = []choice{
	{9, func(t *rapid.T) operation {
		return spoil{rapid.IntRange(0, 3).Draw(t, ""), rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, ""), "permanent", 1}
	}},
	{6, func(t *rapid.T) operation { return move{letter: rapid.IntRange(0, 3).Draw(t, "")} }},
	{12, func(t *rapid.T) operation {
		return replay{replicas.Draw(t, ""), rapid.IntRange(0, 1).Draw(t, ""), rapid.IntRange(0, 4).Draw(t, ""), 0}
	}},
}

// batching has batches of few aggregates fail, some of their transactions not begin,
// and back-offs end while the rest of a batch is at work.
var batching = []choice{
	{6, func(t *rapid.T) operation {
		same := spec{aggregate: rapid.IntRange(0, 1).Draw(t, ""), kind: rapid.SampledFrom([]int{2, 2, 0}).Draw(t, "")}
		return publish{events: slices.Repeat([]spec{same}, rapid.IntRange(1, 6).Draw(t, ""))}
	}},
	{6, func(t *rapid.T) operation {
		return spoil{rapid.IntRange(0, 6).Draw(t, ""), rapid.SampledFrom([]string{"B", "C"}).Draw(t, ""),
			rapid.SampledFrom([]string{"error", "transient", "exit"}).Draw(t, ""), rapid.IntRange(1, 3).Draw(t, "")}
	}},
	{4, func(t *rapid.T) operation {
		return deploy{0, config{upgraded: true, width: rapid.SampledFrom([]int{1, 4}).Draw(t, "")}}
	}},
	{6, func(t *rapid.T) operation { return poll{0, 100, rapid.IntRange(1, 40).Draw(t, ""), seeds.Draw(t, "")} }},
	{12, func(t *rapid.T) operation { return advance{0, rapid.IntRange(1, 6).Draw(t, ""), seeds.Draw(t, "")} }},
	{12, func(t *rapid.T) operation { return fault{0, seeds.Draw(t, ""), rapid.Bool().Draw(t, "")} }},
	{4, func(t *rapid.T) operation { return pause{backOff} }},
	{1, func(t *rapid.T) operation { return crash{0} }},
}

// sequences generates sequences of the choices.
func sequences(choices []choice) *rapid.Generator[[]operation] {
	var weighed []choice
	for _, c := range choices {
		for range c.weight {
			weighed = append(weighed, c)
		}
	}
	op := rapid.Custom(func(t *rapid.T) operation {
		return weighed[rapid.IntRange(0, len(weighed)-1).Draw(t, "")].draw(t)
	})
	// A list of lists is longer, and shrinks faster.
	return rapid.Map(rapid.SliceOfN(rapid.SliceOfN(op, 1, 20), 1, 20), func(parts [][]operation) []operation {
		return slices.Concat(parts...)
	})
}

var finishes = rapid.Custom(func(t *rapid.T) finish {
	return finish{polls: rapid.Bool().Draw(t, ""), config: configs.Draw(t, "")}
})
