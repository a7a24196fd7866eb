package sqlstore

import (
	"fmt"
	"slices"
	"strings"
)

// unlimited is sql_select_limit and max_join_size where there is none.
const unlimited = "18446744073709551615"

// mysqlSetting is one of the session that the statements cannot be made independent
// of, or only at the price of a longer statement for everybody.
type mysqlSetting struct {
	wrong  func(facts) string // what is wrong with it, or ""
	remedy string
}

const leaveOut = "leave it out of the DSN, or set it to DEFAULT"

var mysqlSettings = []mysqlSetting{
	{func(f facts) string {
		if kind := f["completion_type"]; kind != "" && kind != "NO_CHAIN" && kind != "0" {
			return "completion_type is " + kind + ", so a COMMIT begins the next transaction, or ends the connection"
		}
		return ""
	}, leaveOut},
	{func(f facts) string {
		if f.on("sql_safe_updates") {
			return "sql_safe_updates is on, which refuses statements by how the server chooses to run them"
		}
		return ""
	}, leaveOut},
	{func(f facts) string {
		if size := f["max_join_size"]; f["sql_big_selects"] != "" && !f.on("sql_big_selects") && size != unlimited {
			return fmt.Sprintf("max_join_size is %s, beyond which queries are refused", size)
		}
		return ""
	}, "leave it out of the DSN, or set sql_big_selects to 1"},
	{func(f facts) string {
		for _, mode := range []string{"ORACLE", "EMPTY_STRING_IS_NULL"} {
			if slices.Contains(strings.Split(strings.ToUpper(f["sql_mode"]), ","), mode) {
				return "sql_mode has " + mode + ", in which the statements mean something else"
			}
		}
		return ""
	}, "take it out of the sql_mode of the session"},
	{func(f facts) string {
		if f.on("transaction_read_only") || f.on("tx_read_only") {
			return "the session is read-only"
		}
		return ""
	}, leaveOut},
	{func(f facts) string {
		if f.on("require_row_format") {
			return "require_row_format is on, which refuses statements"
		}
		return ""
	}, leaveOut},
	{func(f facts) string {
		if f["unique_checks"] != "" && !f.on("unique_checks") {
			return "unique_checks is off, and what is written once depends on them"
		}
		return ""
	}, leaveOut},
	{func(f facts) string {
		if f.on("log_bin") && f["sql_log_bin"] != "" && !f.on("sql_log_bin") || f.on("skip_replication") {
			return "what the session writes is kept from replicas (sql_log_bin, skip_replication), so a failover would lose it"
		}
		return ""
	}, leaveOut},
}

// mysqlRefuses makes a finding of the error of a server that cannot even be asked.
func mysqlRefuses(err error) error {
	if mysqlNumber(err) == 1104 {
		return refuse("the session's max_join_size refuses queries", "leave it out of the DSN, or set sql_big_selects to 1")
	}
	return nil
}
