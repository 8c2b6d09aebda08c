package sqlite

import (
	"fmt"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// connection speaks to the SQLite library itself. Through the driver, a row of a batch would cost
// twice as much: it allocates for every value, and locks for every call. Whoever uses a connection
// has it alone.
type connection struct {
	tls      *libc.TLS
	db       uintptr
	prepared map[string]*statement

	out   memory   // where the library puts what it makes
	texts []memory // what is bound: the library reads it where it is
	kept  int      // bytes of text that were bound since somebody set it to 0
}

// memory is the library's: it does not know of Go's.
type memory struct {
	at    uintptr
	bytes []byte
}

// statement is prepared SQL whose parameters are bound one after the other and which then runs.
type statement struct {
	on     *connection
	handle uintptr
	bound  int32 // parameters so far
	failed int32 // the code of the first that could not be bound
}

// libraryError is an error of the library, like the driver's.
type libraryError struct {
	code int
	text string
}

func (e *libraryError) Error() string { return fmt.Sprintf("%s (%d)", e.text, e.code) }
func (e *libraryError) Code() int     { return e.code }

const roomForText = 16 << 10

// connect opens a file that exists.
func connect(path string, settings []string) (_ *connection, err error) {
	c := &connection{tls: libc.NewTLS(), prepared: map[string]*statement{}}
	c.out, c.texts = c.allocate(int(unsafe.Sizeof(c.db))), []memory{c.allocate(roomForText)}
	c.forget()
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	name, err := libc.CString(path)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, name)
	code := sqlite3.Xsqlite3_open_v2(c.tls, name, c.out.at, sqlite3.SQLITE_OPEN_READWRITE|sqlite3.SQLITE_OPEN_NOMUTEX, 0)
	c.db = c.made()
	if code != sqlite3.SQLITE_OK {
		return nil, c.failure(code)
	}
	sqlite3.Xsqlite3_extended_result_codes(c.tls, c.db, 1)
	for _, setting := range settings {
		if _, err := c.row("PRAGMA " + setting); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *connection) allocate(size int) memory {
	at := libc.Xmalloc(c.tls, libc.Tsize_t(size))
	if at == 0 {
		panic(fmt.Sprintf("sqlite: no memory for %d bytes", size))
	}
	return memory{at, libc.GoBytes(at, size)}
}

// made is the handle that the library has just put out.
func (c *connection) made() uintptr { return *(*uintptr)(unsafe.Pointer(&c.out.bytes[0])) }

func (c *connection) close() error {
	for _, s := range c.prepared {
		sqlite3.Xsqlite3_finalize(c.tls, s.handle)
	}
	code := sqlite3.Xsqlite3_close_v2(c.tls, c.db)
	for _, m := range append(c.texts, c.out) {
		libc.Xfree(c.tls, m.at)
	}
	c.tls.Close()
	if code != sqlite3.SQLITE_OK {
		return &libraryError{int(code), "close"}
	}
	return nil
}

func (c *connection) failure(code int32) error {
	text := libc.GoString(sqlite3.Xsqlite3_errstr(c.tls, code))
	if c.db != 0 && sqlite3.Xsqlite3_extended_errcode(c.tls, c.db) == code {
		text = libc.GoString(sqlite3.Xsqlite3_errmsg(c.tls, c.db))
	}
	return &libraryError{int(code), text}
}

// statement is the one of that text, prepared on its first use.
func (c *connection) statement(query string) (*statement, error) {
	if s, ok := c.prepared[query]; ok {
		return s, nil
	}
	text, err := libc.CString(query)
	if err != nil {
		return nil, err
	}
	defer libc.Xfree(c.tls, text)
	if code := sqlite3.Xsqlite3_prepare_v3(c.tls, c.db, text, -1, sqlite3.SQLITE_PREPARE_PERSISTENT, c.out.at, 0); code != sqlite3.SQLITE_OK {
		return nil, c.failure(code)
	}
	s := &statement{on: c, handle: c.made()}
	c.prepared[query] = s
	return s, nil
}

// script runs several statements, once.
func (c *connection) script(statements string) error {
	text, err := libc.CString(statements)
	if err != nil {
		return err
	}
	defer libc.Xfree(c.tls, text)
	if code := sqlite3.Xsqlite3_exec(c.tls, c.db, text, 0, 0, 0); code != sqlite3.SQLITE_OK {
		return c.failure(code)
	}
	return nil
}

// exec runs a statement and returns how many rows it changed.
func (c *connection) exec(query string, args ...any) (int64, error) {
	s, err := c.statement(query)
	if err != nil {
		return 0, err
	}
	s.bind(args)
	return s.run()
}

// row runs a query and returns its first row, or nil where it has none.
func (c *connection) row(query string, args ...any) ([]any, error) {
	s, err := c.statement(query)
	if err != nil {
		return nil, err
	}
	s.bind(args)
	defer s.reset()
	code, err := s.step()
	if err != nil || code == sqlite3.SQLITE_DONE {
		return nil, err
	}
	values := make([]any, sqlite3.Xsqlite3_column_count(c.tls, s.handle))
	for i := range values {
		values[i] = s.column(int32(i))
	}
	return values, nil
}

func (s *statement) bind(args []any) {
	for _, value := range args {
		switch v := value.(type) {
		case nil:
			s.null()
		case int64:
			s.integer(v)
		case string:
			s.string(v)
		case []byte:
			s.next(sqlite3.Xsqlite3_bind_blob(s.on.tls, s.handle, s.bound+1, s.on.keep(string(v)), int32(len(v)), 0))
		default:
			panic(fmt.Sprintf("sqlite: a parameter is a %T", value))
		}
	}
}

func (s *statement) null() { s.next(sqlite3.Xsqlite3_bind_null(s.on.tls, s.handle, s.bound+1)) }

func (s *statement) integer(n int64) {
	s.next(sqlite3.Xsqlite3_bind_int64(s.on.tls, s.handle, s.bound+1, n))
}

func (s *statement) string(text string) {
	s.next(sqlite3.Xsqlite3_bind_text(s.on.tls, s.handle, s.bound+1, s.on.keep(text), int32(len(text)), 0))
}

func (s *statement) next(code int32) {
	s.bound++
	if s.failed == sqlite3.SQLITE_OK {
		s.failed = code
	}
}

// keep copies a text to where it stays until the statement is reset.
func (c *connection) keep(text string) uintptr {
	last := &c.texts[len(c.texts)-1]
	if len(last.bytes)+len(text) > cap(last.bytes) {
		c.texts = append(c.texts, c.allocate(max(roomForText, len(text))))
		last = &c.texts[len(c.texts)-1]
		last.bytes = last.bytes[:0]
	}
	c.kept += len(text)
	at := last.at + uintptr(len(last.bytes))
	last.bytes = append(last.bytes, text...)
	return at
}

// forget makes room for the texts of another statement.
func (c *connection) forget() {
	for _, m := range c.texts[1:] {
		libc.Xfree(c.tls, m.at)
	}
	c.texts = c.texts[:1]
	c.texts[0].bytes = c.texts[0].bytes[:0]
}

// run makes all steps and returns how many rows were changed.
func (s *statement) run() (int64, error) {
	defer s.reset()
	for {
		switch code, err := s.step(); {
		case err != nil:
			return 0, err
		case code == sqlite3.SQLITE_DONE:
			return int64(sqlite3.Xsqlite3_changes(s.on.tls, s.on.db)), nil
		}
	}
}

func (s *statement) step() (int32, error) {
	if s.failed != sqlite3.SQLITE_OK {
		return s.failed, s.on.failure(s.failed)
	}
	code := sqlite3.Xsqlite3_step(s.on.tls, s.handle)
	if code != sqlite3.SQLITE_ROW && code != sqlite3.SQLITE_DONE {
		return code, s.on.failure(code)
	}
	return code, nil
}

// reset makes the statement ready for its next run. What was bound is bound no more in all but name:
// the next run binds every parameter again.
func (s *statement) reset() {
	sqlite3.Xsqlite3_reset(s.on.tls, s.handle)
	s.bound, s.failed = 0, sqlite3.SQLITE_OK
	s.on.forget()
}

func (s *statement) column(i int32) any {
	tls := s.on.tls
	switch sqlite3.Xsqlite3_column_type(tls, s.handle, i) {
	case sqlite3.SQLITE_INTEGER:
		return sqlite3.Xsqlite3_column_int64(tls, s.handle, i)
	case sqlite3.SQLITE_NULL:
		return nil
	}
	text := sqlite3.Xsqlite3_column_text(tls, s.handle, i)
	return string(libc.GoBytes(text, int(sqlite3.Xsqlite3_column_bytes(tls, s.handle, i))))
}
