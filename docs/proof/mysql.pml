/*
 * MySQL and MariaDB: the rotating fence. Compare internal/sqlstore/fence.go,
 * and AppendRecord, SampleClock, SafeMark and ReadAfter in mysql.go. Each
 * #ifdef is a negative control, listed in README.md.
 */

#ifndef LAST
#define LAST 5	/* the clock's last tick: it comes round to slots used before */
#endif
#define RING 3	/* slots; a lap is RING * WIDTH ticks */
#ifndef WIDTH
#define WIDTH 1	/* ticks in a slot */
#endif
#define SLOT(at) ((at) / WIDTH % RING)

#include "rows.pml"

byte holders[RING];	/* how many transactions hold a shared lock on a slot */
byte freeAt[RING];	/* the reader's memory: when each slot was last seen free */

/* release releases the locks, one after the other. */
inline release()
{
	do
	:: slot < RING ->
		atomic {
			if
			:: HAS(mine, slot) -> holders[slot]--
			:: else
			fi;
			slot++
		}
	:: else -> break
	od;
	atomic { slot = 0; mine = 0 }
}

/* A transaction that publishes and ends either way. A savepoint would add
nothing: InnoDB keeps the locks of what is rolled back to one, and a row that is
taken back cannot be lost. */
proctype Producer(byte p)
{
	byte row = FIRST(p);	/* the next to insert */
	byte slot, mine, i;	/* mine: the slots that it has locked, a bit each */
#if defined(STAMP_NOW) || defined(DIRTY_READ)
	byte at;
#endif

	do
	:: row < FIRST(p) + PUBLISHES ->
		/* One statement: NOW, which stands still, gives the slot. Then it
		locks the slot, for which it may have to wait any time. Then it
		takes SYSDATE as the stamp and inserts. */
#ifdef STAMP_NOW
		atomic { slot = SLOT(clock); at = clock }
#else
		slot = SLOT(clock);
#endif
#ifndef NO_LOCK
		atomic {
			if
			:: !HAS(mine, slot) -> mine = mine | BIT(slot); holders[slot]++
			:: else
			fi
		}
#endif
#if defined(STAMP_NOW)
		atomic { stamp[row] = at; at = 0 }
#elif defined(DIRTY_READ)
		stampRow(at);	/* and not in the table yet */
		atomic { stamp[row] = at; at = 0 }
#else
		stampRow(stamp[row]);
#endif
		atomic { row++; slot = 0 }
	:: row > FIRST(p) ->	/* COMMIT */
		/* First it becomes visible, then it releases its locks. */
#ifdef RELEASE_BEFORE_VISIBLE
		release();
#endif
		atomic { visible = visible | BIT(p); check() }
		break
	:: row > FIRST(p) ->	/* ROLLBACK */
		atomic { takeBack(FIRST(p), row) }
		break
	od;
	release();
	row = 0
}

/* A read view is not opened in one step: MariaDB walks over the transactions
that are active. It holds all that was visible when the walk began, nothing that
is not visible when it ends, and of the rest any. */
inline beginReadView()
{
	snapshot = visible
}

inline endReadView()
{
	if
	:: snapshot = snapshot | visible & BIT(0)
	:: true
	fi;
	if
	:: snapshot = snapshot | visible & BIT(1)
	:: true
	fi
}

#ifdef CURRENT_LEFT_OUT
#define COUNTS(slot) (slot != SLOT(now))
#else
#define COUNTS(slot) true
#endif

/* safeMark is the lowest of the times at which each slot was last seen free. */
inline safeMark()
{
	mark = now;
	do
	:: slot < RING ->
		if
		:: COUNTS(slot) && freeAt[slot] < mark -> mark = freeAt[slot]
		:: else
		fi;
		slot++
	:: else -> slot = 0; break
	od;
#ifdef DIRTY_READ
	/* Instead: the lowest row that a dirty read shows and a read of what is
	committed does not. */
	mark = now;
	do
	:: i < ROWS ->
		if
		:: stamp[i] > 0 && !HAS(visible, OWNER(i)) && stamp[i] < mark -> mark = stamp[i]
		:: else
		fi;
		i++
	:: else -> i = 0; break
	od;
#endif
	now = 0
}

active proctype Reader()
{
	byte now, mark, slot, i;
#ifdef SAMPLE_AFTER
	bool free;
#endif

	do
	:: true ->
		/* First statement: the time, and with it the slot of now. */
		now = clock;
#ifdef ONE_SNAPSHOT
		atomic { beginReadView(); endReadView() }
#endif
		/* Second statement: FOR UPDATE SKIP LOCKED, one slot after the other.
		It locks what it gets, which could only make producers wait. */
		do
		:: slot < RING ->
#ifdef SAMPLE_AFTER
			free = (slot != SLOT(now) && holders[slot] == 0);
			atomic {
				if
				:: free -> freeAt[slot] = clock; free = false
#else
			atomic {
				if
				:: slot != SLOT(now) && holders[slot] == 0 -> freeAt[slot] = now
#endif
				:: else
				fi;
				slot++
			}
		:: else -> break
		od;
		/* Third statement, with a read view of its own. */
		atomic {
			slot = 0;
			safeMark();
#ifndef ONE_SNAPSHOT
			beginReadView()
#endif
		}
		atomic {
#ifndef ONE_SNAPSHOT
			endReadView();
#endif
			mark = READ_BELOW(mark);
			readRows();
			mark = 0
		}
	:: atomic { freeAt[0] + freeAt[1] + freeAt[2] > 0 ->	/* a new process has forgotten all */
#ifdef START_WITH_NOW
			freeAt[0] = clock; freeAt[1] = clock; freeAt[2] = clock
#else
			freeAt[0] = 0; freeAt[1] = 0; freeAt[2] = 0
#endif
		}
	od
}

init
{
	atomic {
		run Producer(0);
#if PRODUCERS > 1
		run Producer(1)
#endif
	}
}
