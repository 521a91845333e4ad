package main

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// print tells what the first part did.
func (f filled) print() {
	fmt.Printf("produced   %s, %s of lines from %s in %s: %s\n",
		plural(f.records, "record"), size(f.bytes), plural(int64(f.files), "file"), seconds(f.produce), rates(f.records, f.bytes, f.produce))
	fmt.Printf("consumed   all of them at the same time, each compared with the source; done %s after the last acknowledgement\n",
		seconds(max(f.consume-f.produce, 0)))
	for n := range f.begin {
		fmt.Printf("           partition %d: %s, offsets %s\n", n, plural(f.end[n]-f.begin[n], "record"), span(f.begin[n], f.end[n]))
	}
}

// print tells what the second part did and where everything is.
func (r reopened) print(dir string) {
	var went []string
	for _, at := range r.added {
		went = append(went, fmt.Sprintf("%d/%d", at.Partition, at.Offset))
	}
	fmt.Printf("reopened   in %s; offsets go on: one more record each at %s\n", seconds(r.open), strings.Join(went, ", "))
	fmt.Printf("read again %s in %s, each compared with the source: %s\n",
		plural(r.records, "record"), seconds(r.consume), rates(r.records, r.bytes, r.consume))
	fmt.Printf("closed     in %s\n", seconds(r.close))
	fmt.Printf("on disk    %s in %s\n", diskUse(dir), dir)
	fmt.Printf("           to delete it: rm -r %s\n", quote(dir))
}

// span writes a range of offsets, the end excluded.
func span(begin, end int64) string {
	if begin == end {
		return "none"
	}
	return fmt.Sprintf("%d to %d", begin, end-1)
}

func rates(records, bytes int64, d time.Duration) string {
	s := max(d.Seconds(), 1e-9)
	return fmt.Sprintf("%.1f MB/s, %s records/s", float64(bytes)/1e6/s, count(int64(float64(records)/s)))
}

func seconds(d time.Duration) string {
	if d < 100*time.Millisecond {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

func size(bytes int64) string {
	switch {
	case bytes >= 1e9:
		return fmt.Sprintf("%.2f GB", float64(bytes)/1e9)
	case bytes >= 1e6:
		return fmt.Sprintf("%.1f MB", float64(bytes)/1e6)
	case bytes >= 1e3:
		return fmt.Sprintf("%.1f kB", float64(bytes)/1e3)
	}
	return plural(bytes, "byte")
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// count writes a number with its digits in groups.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// diskUse adds up the files below dir.
func diskUse(dir string) string {
	var files, bytes int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		files++
		bytes += info.Size()
		return nil
	})
	if err != nil {
		return "an unknown number of bytes (" + err.Error() + ")"
	}
	return size(bytes) + " in " + plural(files, "file")
}

// quote writes a path for a shell.
func quote(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-", r))
	}) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
