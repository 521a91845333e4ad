//go:build !(linux || darwin || freebsd || dragonfly)

package vfs

import (
	"errors"
	"io"
)

// OS is not there on this system: each method returns errors.ErrUnsupported. Mem
// works everywhere.
var OS FS = noFS{}

type noFS struct{}

func (noFS) Create(string) (File, error)            { return nil, errors.ErrUnsupported }
func (noFS) Open(string) (File, error)              { return nil, errors.ErrUnsupported }
func (noFS) OpenReadOnly(string) (File, error)      { return nil, errors.ErrUnsupported }
func (noFS) Remove(string) error                    { return errors.ErrUnsupported }
func (noFS) RemoveAll(string) error                 { return errors.ErrUnsupported }
func (noFS) Rename(string, string) error            { return errors.ErrUnsupported }
func (noFS) Link(string, string) error              { return errors.ErrUnsupported }
func (noFS) MkdirAll(string) error                  { return errors.ErrUnsupported }
func (noFS) List(string) ([]string, error)          { return nil, errors.ErrUnsupported }
func (noFS) Stat(string) (Info, error)              { return Info{}, errors.ErrUnsupported }
func (noFS) SyncDir(string) error                   { return errors.ErrUnsupported }
func (noFS) Lock(string, string) (io.Closer, error) { return nil, errors.ErrUnsupported }
func (noFS) Free(string) (Space, error)             { return Space{}, errors.ErrUnsupported }
