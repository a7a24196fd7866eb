package database

import (
	"errors"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// mysqlConfig reads a URL, or a DSN in the driver's own form.
func mysqlConfig(dsn string) (*mysql.Config, error) {
	if scheme, _, found := strings.Cut(dsn, "://"); !found || schemes[scheme] == "" {
		return mysql.ParseDSN(dsn)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	if u.Host == "" {
		return nil, errors.New("no host")
	}
	if u.Port() == "" {
		u.Host += ":3306"
	}
	// User and password are set afterwards, so that no character of theirs
	// means anything.
	config, err := mysql.ParseDSN("tcp(" + u.Host + ")" + u.EscapedPath() + "?" + u.RawQuery)
	if err != nil {
		return nil, err
	}
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	return config, nil
}
