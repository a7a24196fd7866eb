package domain

import "context"

// APIKey is an aggregate of its own: it refers to its user by id.
type APIKey struct {
	ID      string
	UserID  string
	Revoked bool
	// Revocations counts how often the key was revoked. More than one shows
	// that an event took effect twice.
	Revocations int
}

// NewAPIKey returns a live key of the user.
func NewAPIKey(id, userID string) APIKey { return APIKey{ID: id, UserID: userID} }

// Revoke makes the key worthless.
func (k *APIKey) Revoke() {
	k.Revoked = true
	k.Revocations++
}

// APIKeys is the repository of API keys.
type APIKeys interface {
	// OfUser returns the keys of a user, by id.
	OfUser(ctx context.Context, userID string) ([]APIKey, error)

	// OfUserForUpdate is OfUser for keys that are going to be saved: until the
	// transaction ends, nobody else gets past it. It needs a transaction.
	OfUserForUpdate(ctx context.Context, userID string) ([]APIKey, error)

	// Save writes the key, which may be new. It needs a transaction.
	Save(ctx context.Context, key APIKey) error
}
