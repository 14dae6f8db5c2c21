package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
)

// pollEvery is how often the policies folder is looked at without an event: on
// file systems that give none, and while there is no folder. A look is one
// listing of a small folder.
const pollEvery = time.Second

// Reload reads everything again: the specs and who verifies signatures, which
// may be others, the modules, and the policies folder. What has not changed stays as it is, but for
// a policy that has tripped, which is asked again. Its error is that of Open,
// and then nothing has changed.
func (s *Set) Reload(ctx context.Context, specs []Spec, verify Verify) error {
	s.update.Lock()
	defer s.update.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return errors.New("the policies are closed")
	}
	before := s.opts.Verify
	s.opts.Verify = verify
	list, err := s.loadListed(ctx, specs)
	if err != nil {
		s.opts.Verify = before
		return err
	}
	s.listed = list
	for _, f := range s.files {
		f.info = nil // to be judged again: pins and grants may be others
	}
	s.readFolder(ctx)
	s.publish()
	for _, e := range s.Entries() {
		if e.Policy != nil {
			Reset(e.Policy)
		}
	}
	return nil
}

// watch keeps the waterfall in step with the policies folder, from the first
// call of Policies on, until ctx ends.
func (s *Set) watch(ctx context.Context) {
	select {
	case <-s.beginCh:
	case <-ctx.Done():
		close(s.begun)
		return
	}
	w := newWatcher(s.opts.Folder)
	defer w.close()
	s.lookAtOnce(ctx)
	close(s.begun)
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	again := time.NewTimer(time.Hour)
	again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e, ok := <-w.events():
			w.heard(e, ok)
			again.Reset(glance) // when all that belongs together has come
			continue
		case <-w.errors(): // what was missed is found by looking
		case <-again.C:
		case <-poll.C:
			w.follow()
		}
		if !s.look(ctx) {
			again.Reset(glance)
		}
	}
}

// look takes in what has changed in the folder. It reports whether every file
// is at rest.
func (s *Set) look(ctx context.Context) bool {
	s.update.Lock()
	defer s.update.Unlock()
	rest := s.readFolder(ctx)
	s.publish()
	return rest
}

// lookAtOnce is look that waits, for a moment, for files that are not at rest:
// what was put there before must count from now on.
func (s *Set) lookAtOnce(ctx context.Context) {
	for range maxGlances {
		if s.look(ctx) || ctx.Err() != nil {
			return
		}
		time.Sleep(glance)
	}
}

// A watcher hears of changes in a folder, where the system tells of them.
type watcher struct {
	dir     string
	notify  *fsnotify.Watcher // nil: nothing is heard
	watched os.FileInfo       // the folder that is watched; nil: none is
}

func newWatcher(f Folder) *watcher {
	w := &watcher{dir: string(f)}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return w // as many as the system allows are in use: the folder is polled
	}
	w.notify = notify
	if _, err := os.Lstat(w.dir); errors.Is(err, fs.ErrNotExist) {
		_ = os.Mkdir(w.dir, 0o700) // without it the folder is polled until it is there
	}
	w.follow()
	return w
}

// follow watches the folder that is there now, which need not be the one that
// was there before.
func (w *watcher) follow() {
	if w.notify == nil {
		return
	}
	info, err := os.Stat(w.dir)
	if err != nil || w.watched != nil && os.SameFile(info, w.watched) {
		return
	}
	_ = w.notify.Remove(w.dir) // it may be watched, or not
	w.watched = nil
	if w.notify.Add(w.dir) == nil {
		w.watched = info
	}
}

// heard notes what an event says of the folder itself. No more come where ok is
// false.
func (w *watcher) heard(e fsnotify.Event, ok bool) {
	switch {
	case !ok:
		w.close()
	case e.Name == w.dir && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)):
		w.watched = nil
	}
}

// events never comes where nothing is heard.
func (w *watcher) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

func (w *watcher) errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close() // it has nothing to lose
	}
	w.notify = nil
}

// goneText says what a folder that cannot be read means for its policies.
func goneText(dir string, err error) string {
	what := fmt.Sprintf("cannot be read: %v", bare(err))
	if errors.Is(err, fs.ErrNotExist) {
		what = "is gone"
	}
	return fmt.Sprintf("the policies folder %s %s: its policies go on as they were", dir, what)
}
