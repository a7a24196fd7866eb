/*
 * What both fences have in common: the clock, the rows, the cursor that moves
 * below a mark, and the property. See README.md.
 */

#ifndef PRODUCERS
#define PRODUCERS 1
#endif
#ifndef PUBLISHES
#define PUBLISHES 2	/* rows that a transaction may insert, one a statement */
#endif
#define ROWS (PRODUCERS * PUBLISHES)
#define FIRST(producer) ((producer) * PUBLISHES)
#define OWNER(row) ((row) / PUBLISHES)
#define BIT(n) (1 << (n))
#define HAS(set, n) (((set) & BIT(n)) != 0)

byte clock = 1;
byte stamp[ROWS];	/* created_time; 0: no such row, or it has been read */
byte visible;		/* the transactions that a new snapshot holds, a bit each */

byte snapshot;		/* those that the reader sees */
byte cursor;		/* the time up to which the reader has come */
#ifdef DELIVERS
byte delivered;
#endif

/* Time passes at any moment, or not. */
active proctype Clock()
{
#ifdef CLOCK_BACK
	bool back;
#endif
	do
	:: clock < LAST -> clock++
#ifdef CLOCK_BACK
	:: !back -> back = true; clock = 1
#endif
	:: clock == LAST -> break
	od
}

/* stampRow stamps with the time, or a little ahead of it, since the rows of one
statement are numbered upwards. */
inline stampRow(at)
{
	if
	:: at = clock
	:: at = clock + 1
	fi
}

/* takeBack undoes rows, from one number up to, but not including, another. */
inline takeBack(from, to)
{
	i = from;
	do
	:: i < to -> stamp[i] = 0; i++
	:: else -> i = 0; break
	od
}

/* The property: no committed row is at or before the cursor without having been
read. It is checked where it can become false: when a transaction becomes visible
and when the cursor moves. */
inline check()
{
	do
	:: i < ROWS ->
		assert(!(stamp[i] > 0 && HAS(visible, OWNER(i)) && stamp[i] <= cursor));
		i++
	:: else -> i = 0; break
	od
}

#ifdef TIES
#define BELOW(at, mark) ((at) <= (mark))
#else
#define BELOW(at, mark) ((at) < (mark))
#endif

/* readRows reads what is below the mark, in order, and moves the cursor. It may
stop anywhere, as if a row of somebody else were the last that the limit lets
in: one that was stamped and committed in no time, with the highest id. */
inline readRows()
{
	do
	:: BELOW(cursor + 1, mark) ->
		cursor++;
		do
		:: i < ROWS ->
			if
			:: stamp[i] == cursor && HAS(snapshot, OWNER(i)) ->
				stamp[i] = 0;
#ifdef DELIVERS
				delivered++
#endif
			:: else
			fi;
			i++
		:: else -> i = 0; break
		od
	:: true -> break
	od;
	snapshot = 0;
	check();
#ifdef DELIVERS
	/* Not a property: a run in which all is read has to exist. */
	assert(delivered < ROWS);
#endif
}

/* What other readers would do. */
#ifdef PLAIN
#define READ_BELOW(mark) (clock + 1)		/* all that can be there */
#elif defined(MARGIN)
#define READ_BELOW(mark) (clock > MARGIN -> clock - MARGIN : 0)
#else
#define READ_BELOW(mark) (mark)
#endif
