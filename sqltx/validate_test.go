package sqltx_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
	"github.com/onward-go/outbox/sqltx"
)

func TestASessionThatMayOnlyReadIsFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox.db")
	require.NoError(t, sqltx.Migrate(t.Context(), drivers["pure"].open(t, path), sqltx.SQLite))
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=query_only(1)&_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	v, err := sqltx.New(db, sqltx.SQLite).Validate(t.Context())
	require.ErrorIs(t, err, persistence.ErrUnsupported)
	require.ErrorContains(t, err, "the session is read-only")
	require.Len(t, v.Findings, 1)
	require.Regexp(t, `^SQLite 3\.`, v.Server)
}

func TestAValidationReturnsWhatIsWrongWithOptions(t *testing.T) {
	_, err := sqltx.New(nil, sqltx.SQLite).Validate(t.Context())
	require.ErrorIs(t, err, persistence.ErrInvalid)
	_, err = sqltx.New(nil, sqltx.SQLite).ReadStatus(t.Context())
	require.ErrorIs(t, err, persistence.ErrInvalid)
}

func openAt(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// findings are the problems that a validation names.
func findings(t *testing.T, db *sql.DB) string {
	t.Helper()
	v, err := sqltx.New(db, sqltx.SQLite).Validate(t.Context())
	require.Equal(t, v.Err() != nil, err != nil, err)
	return v.String()
}

func TestASQLiteWithoutABusyTimeoutIsFound(t *testing.T) {
	path := "file:" + filepath.Join(t.TempDir(), "outbox.db")
	db := openAt(t, path)
	require.NoError(t, sqltx.Migrate(t.Context(), db, sqltx.SQLite))
	require.Contains(t, findings(t, db), "warning: the session has no busy timeout")
	db.SetMaxOpenConns(1)
	require.Empty(t, findings(t, db), "nobody in the process has it locked")
	require.Empty(t, findings(t, openAt(t, path+"?_pragma=busy_timeout(10000)")))
}

// Each connection has a database of its own in memory, unless they share a cache.
func TestADatabaseInMemoryUnderAPoolIsFound(t *testing.T) {
	db := openAt(t, "file::memory:?_pragma=busy_timeout(10000)")
	require.Contains(t, findings(t, db), "in memory")
	require.NoError(t, sqltx.Migrate(t.Context(), db, sqltx.SQLite))
	text := findings(t, db)
	require.Contains(t, text, "error: unsupported server: the database is in memory, and each of the pool's connections has one of its own")
	require.Contains(t, text, "SetMaxOpenConns(1)")
	for dsn, connections := range map[string]int{":memory:": 1, "file:shared_by_all?mode=memory&cache=shared&_pragma=busy_timeout(10000)": 0} {
		db := openAt(t, dsn)
		db.SetMaxOpenConns(connections)
		require.NoError(t, sqltx.Migrate(t.Context(), db, sqltx.SQLite))
		require.Empty(t, findings(t, db), dsn)
	}
}

func TestAnotherDialectIsFound(t *testing.T) {
	db := openAt(t, "file:"+filepath.Join(t.TempDir(), "outbox.db")+"?_pragma=busy_timeout(10000)")
	for _, dialect := range []sqltx.Dialect{sqltx.Postgres, sqltx.MySQL} {
		outbox := sqltx.New(db, dialect)
		_, err := outbox.ReadAfter(t.Context(), persistence.Cursor{}, 1)
		for _, err := range []error{err, outbox.Migrate(t.Context())} {
			require.ErrorIs(t, err, persistence.ErrUnsupported)
			require.ErrorContains(t, err, "pass the dialect sqlite")
		}
		v, err := outbox.Validate(t.Context())
		require.ErrorIs(t, err, persistence.ErrUnsupported)
		require.Len(t, v.Findings, 1)
		require.Contains(t, v.Findings[0].Problem, "made for the dialect "+string(dialect)+", and the database that answers is one of sqlite")
	}
}

func TestAFileThatCannotBeOpenedSaysWhatToDo(t *testing.T) {
	_, err := sqltx.New(openAt(t, "file:"+filepath.Join(t.TempDir(), "nowhere", "outbox.db")), sqltx.SQLite).Validate(t.Context())
	require.ErrorContains(t, err, "make the file's folder")
}
