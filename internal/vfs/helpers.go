package vfs

import (
	"io"
	"os"
	"path/filepath"
)

// tempSuffix marks the file WriteFileAtomic writes before it takes its name.
const tempSuffix = ".tmp"

// osFiler is a file that stands on one of the system's.
type osFiler interface {
	osFile() *os.File
}

// OSFile returns the system's file behind f, nil if there is none. It is the same open file: closing one closes both.
func OSFile(f File) *os.File {
	if o, ok := f.(osFiler); ok {
		return o.osFile()
	}
	return nil
}

// ReadFile returns the whole content of the file name.
func ReadFile(fs FS, name string) ([]byte, error) {
	f, err := fs.OpenReadOnly(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if err == io.EOF { // shrunk since Size, or exactly at the end
		err = nil
	}
	return data[:n], err
}

// WriteFileAtomic replaces the content of name, or creates it, so that a crash
// leaves the old file or the new one, never a part. When it returns nil the new
// one is durable. It uses name + ".tmp" on the way, so one caller at a time, and
// a stale one may be left by a crash (the next call clears it away).
func WriteFileAtomic(fs FS, name string, data []byte) error {
	temp := name + tempSuffix
	if err := fs.RemoveAll(temp); err != nil {
		return err
	}
	if err := writeFile(fs, temp, data); err != nil {
		_ = fs.RemoveAll(temp)
		return err
	}
	if err := fs.Rename(temp, name); err != nil {
		_ = fs.RemoveAll(temp)
		return err
	}
	return fs.SyncDir(filepath.Dir(name))
}

// writeFile creates name with data and syncs the data, not the name.
func writeFile(fs FS, name string, data []byte) error {
	f, err := fs.Create(name)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.SyncData(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
