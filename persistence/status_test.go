package persistence_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/onward-go/outbox/persistence"
)

func TestSecondsAreANumberInJSON(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                                     "0",
		1500 * time.Millisecond:               "1.5",
		-time.Hour:                            "-3600",
		time.Microsecond + time.Nanosecond:    "0.000001",
		100*24*time.Hour + time.Microsecond*3: "8640000.000003",
	} {
		text, err := json.Marshal(persistence.Seconds(d))
		require.NoError(t, err)
		require.Equal(t, want, string(text))
		var back persistence.Seconds
		require.NoError(t, json.Unmarshal(text, &back))
		require.Equal(t, d.Round(time.Microsecond), back.Duration())
	}
	s := persistence.Seconds(time.Second)
	require.NoError(t, json.Unmarshal([]byte("null"), &s))
	require.Equal(t, "1s", s.String())
	require.Error(t, json.Unmarshal([]byte(`"a"`), &s))
}

func TestWhatAStatusIsMadeOf(t *testing.T) {
	require.Equal(t, persistence.Count{N: 5}, persistence.CountTo(5, 5))
	require.Equal(t, persistence.Count{N: 5, More: true}, persistence.CountTo(6, 5))
	now := time.Now()
	lease := persistence.Lease{Owner: "o", Token: 3, ExpiresTime: now.Add(time.Second), Unclean: true}
	require.Equal(t, persistence.LeaseStatus{Owner: "o", Token: 3, Expires: lease.ExpiresTime, Held: true, Unclean: true}, lease.Status(now))
	require.False(t, lease.Status(lease.ExpiresTime).Held)
	at := persistence.Cursor{CreatedTime: now.Add(-time.Second)}
	require.EqualValues(t, time.Second, at.Age(now))
	require.Zero(t, at.Age(now.Add(-time.Hour)), "the clock was set back")
}

func TestAValidationIsAnErrorOfEachKind(t *testing.T) {
	v := persistence.Validation{Findings: []persistence.Finding{
		{Severity: persistence.SeverityWarning, Problem: "the clocks are apart", Remedy: "synchronise them"},
	}}
	require.NoError(t, v.Err())
	v.Findings = append(v.Findings,
		persistence.Finding{Severity: persistence.SeverityError, Problem: "no table", Remedy: "migrate", Kind: persistence.ErrSchema},
		persistence.Finding{Severity: persistence.SeverityError, Problem: "no right", Remedy: "grant", Kind: persistence.ErrPrivilege})
	err := v.Err()
	require.ErrorIs(t, err, persistence.ErrSchema)
	require.ErrorIs(t, err, persistence.ErrPrivilege)
	require.NotErrorIs(t, err, persistence.ErrUnsupported)
	require.EqualError(t, err, "outbox schema: no table: migrate\nmissing privilege: no right: grant")
	require.Equal(t, "warning: the clocks are apart: synchronise them\nerror: outbox schema: no table: migrate\nerror: missing privilege: no right: grant\n", v.String())

	roles, err := persistence.CheckRoles(nil)
	require.NoError(t, err)
	require.Equal(t, []persistence.Role{persistence.RoleProducer, persistence.RoleDispatcher}, roles)
	_, err = persistence.CheckRoles([]persistence.Role{""})
	require.ErrorIs(t, err, persistence.ErrInvalid)
}
