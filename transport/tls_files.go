package transport

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"
)

// tlsFiles is what the certificate files held when they were last good.
type tlsFiles struct {
	opts TLSOptions
	// optionalCA allows for no CAFile: then there is no pool.
	optionalCA bool

	mu struct {
		sync.Mutex
		good   tlsMaterial
		stamps [3]stamp // of the files that were read last, good or not
		looked time.Time
	}
}

// tlsMaterial is never changed.
type tlsMaterial struct {
	cert tls.Certificate
	pool *x509.CertPool
}

// stamp tells versions of a file apart.
type stamp struct {
	modified time.Time
	size     int64
}

// caFile is the place of CAFile in names.
const caFile = 2

func (f *tlsFiles) names() [3]string {
	return [3]string{f.opts.CertFile, f.opts.KeyFile, f.opts.CAFile}
}

// readStamps looks at the files. One that is missing has the zero stamp.
func (f *tlsFiles) readStamps() (stamps [3]stamp) {
	for i, name := range f.names() {
		if info, err := os.Stat(name); err == nil {
			stamps[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return stamps
}

// current returns what is in use, after looking for changed files if it is time.
func (f *tlsFiles) current() tlsMaterial {
	f.mu.Lock()
	due := f.opts.CheckInterval >= 0 && time.Since(f.mu.looked) >= f.opts.CheckInterval
	if due {
		f.mu.looked = time.Now()
		due = f.readStamps() != f.mu.stamps
	}
	f.mu.Unlock()
	if due {
		f.report(f.reload())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.good
}

// reload reads the files; if they are not good what was stays.
func (f *tlsFiles) reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Before reading: a change meanwhile is found the next time.
	f.mu.stamps = f.readStamps()
	f.mu.looked = time.Now()
	m, err := f.load()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	f.mu.good = m
	return nil
}

func (f *tlsFiles) load() (tlsMaterial, error) {
	var data [3][]byte
	for i, name := range f.names() {
		if name == "" && i == caFile && f.optionalCA {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return tlsMaterial{}, err
		}
		data[i] = b
	}
	cert, err := tls.X509KeyPair(data[0], data[1])
	if err != nil {
		return tlsMaterial{}, fmt.Errorf("%s and %s: %w", f.opts.CertFile, f.opts.KeyFile, err)
	}
	if data[caFile] == nil {
		return tlsMaterial{cert: cert}, nil
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data[caFile]) {
		return tlsMaterial{}, fmt.Errorf("%s: no certificate in it", f.opts.CAFile)
	}
	return tlsMaterial{cert, pool}, nil
}

func (f *tlsFiles) report(err error) {
	if f.opts.OnReload != nil {
		f.opts.OnReload(err)
	}
}
