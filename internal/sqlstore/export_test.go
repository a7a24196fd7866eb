package sqlstore

// TearViews makes the store read as from a server that tears read views.
func (s *Store) TearViews() { s.tornViews.Store(true) }
