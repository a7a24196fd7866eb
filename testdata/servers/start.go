package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// OriginVar names the environment variable that restricts where new servers come
// from: to FromContainer or FromLocal. Empty, both are tried.
const OriginVar = "OUTBOX_TEST_ORIGIN"

// environmentTimeout is how long a server named by the environment may take to
// answer; it may have been started a moment ago.
const environmentTimeout = 10 * time.Second

// errUnavailable marks an origin that this machine does not offer, as opposed
// to one that failed.
var errUnavailable = errors.New("not available")

// Start returns a server of the given kind: the one that the environment
// names, or a new one. The caller stops it.
func Start(ctx context.Context, kind *Kind) (*Server, error) {
	if err := kind.known(); err != nil {
		return nil, err
	}
	if dsn := os.Getenv(kind.EnvVar); dsn != "" {
		return fromEnvironment(ctx, kind, dsn)
	}
	return StartOwn(ctx, kind)
}

// StartOwn is [Start] without the environment's server: what it returns may be
// killed and restarted.
func StartOwn(ctx context.Context, kind *Kind) (*Server, error) {
	if err := kind.known(); err != nil {
		return nil, err
	}
	origin := os.Getenv(OriginVar)
	if origin != "" && origin != FromContainer && origin != FromLocal {
		return nil, fmt.Errorf("%s=%s: use %s or %s, or unset it", OriginVar, origin, FromContainer, FromLocal)
	}
	var containerErr, localErr error
	if origin != FromLocal {
		var s *Server
		if s, containerErr = startContainer(ctx, kind); containerErr == nil {
			return s, nil
		}
		// Who names an image wants that one and no other version.
		if image := os.Getenv(kind.ImageVar); image != "" {
			return nil, fmt.Errorf("%s=%s: %w", kind.ImageVar, image, containerErr)
		}
		if ctx.Err() != nil {
			return nil, containerErr
		}
	}
	if origin != FromContainer {
		var s *Server
		if s, localErr = startLocal(ctx, kind); localErr == nil {
			return s, nil
		}
	}
	err := errors.Join(localErr, containerErr)
	if unavailable(localErr) && unavailable(containerErr) {
		return nil, fmt.Errorf("no %s server: run '%s' or set %s (%s)",
			kind.Name, kind.installation(), kind.EnvVar, oneLine(err))
	}
	return nil, err
}

// installation is the command that brings the server's programs.
func (k *Kind) installation() string {
	if k.installer != "" {
		return k.installer
	}
	return "apt-get install " + k.Package
}

// unavailable reports whether an origin was not tried or is not there.
func unavailable(err error) bool { return err == nil || errors.Is(err, errUnavailable) }

func fromEnvironment(ctx context.Context, kind *Kind, dsn string) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, environmentTimeout)
	defer cancel()
	addr, err := kind.engine.address(dsn)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind.EnvVar, err)
	}
	alive := func(context.Context) error { return nil }
	version, err := kind.await(ctx, dsn, alive)
	if err != nil {
		return nil, fmt.Errorf("correct or unset %s: %w", kind.EnvVar, err)
	}
	return &Server{
		Name: kind.Name, DSN: dsn, Addr: addr, Version: version,
		Origin: FromEnvironment, kind: kind,
	}, nil
}

// oneLine joins the lines of an error's text.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool {
		return r == '\n' || r == '\r'
	}), "; ")
}
