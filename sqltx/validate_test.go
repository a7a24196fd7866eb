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
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=query_only(1)")
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
