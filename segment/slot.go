package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/billetlog/billet/internal/vfs"
)

// SlotFileName is the name of the slot file in a replica's folder.
const SlotFileName = "raft"

// Bounds of a slot.
const (
	// SlotImageMax is the most bytes one image may take: the snapshot records, the bootstrap and about 200 bytes more.
	SlotImageMax = slotPlace / sectorSize * sectorPayload
	// SlotSnapshotsMax is the most snapshot records one slot keeps.
	SlotSnapshotsMax = 3
	// SlotBootIDMax is the most bytes of a boot id.
	SlotBootIDMax = 255
)

// Slot is what a replica must remember besides its frames: Raft's state and how far the log is known to be on disk. One image of it is
// written whole, or not at all.
type Slot struct {
	Seq        uint64 // order of the images, given by Put
	Generation uint64 // folder of frames that counts
	Term       uint64
	Vote       uint64
	Commit     uint64
	Mark       uint64   // Raft index known to be durable
	MarkOffset int64    // Kafka offset behind it
	Role       uint8    // opaque here
	BootID     string   // of the machine, when the image was written
	Clean      bool     // all was durable and nothing written after
	Snapshots  [][]byte // opaque, newest last, at most SlotSnapshotsMax
	Bootstrap  []byte   // opaque
	Identity   Identity
	Created    int64 // Unix nanoseconds
}

// SlotFile is a replica's slot file: two places, each for one image, of which the newest valid one counts. It is safe for concurrent
// use; order of Puts is up to the caller.
type SlotFile struct {
	file vfs.File
	path string

	mu struct {
		sync.Mutex
		identity Identity
		seq      uint64 // of the last image written
		place    int    // where that is
		durable  bool   // whether it is known to be durable; the other place is then free for the next one
		err      error  // first failed write or sync
	}
}

// The slot file: two places of 16 KiB, each for one image, cut into sectors (see sector.go). What stands behind an image in its place is
// of longer, older images and means nothing. Frozen for format version 1; hash, magic, version and length for all versions.
const (
	slotVersion  = 1
	slotMagic    = 0x626c_736c // "blsl"
	slotPlace    = 16 << 10
	slotFileSize = 2 * slotPlace
	slotFixed    = 152
)

// appendSlot appends the image of s, in sectors. Positions are in their payload; all integers are big-endian.
//
//	0    xxhash64 of all behind it
//	8    magic "blsl" (4), format version (4)
//	16   length (4), zero (4)
//	24   sequence
//	32   generation
//	40   term, 48 vote, 56 commit
//	64   mark, 72 mark offset
//	80   created
//	88   cluster (16), 104 topic (16)
//	120  shard, 128 replica
//	136  partition (4)
//	140  role (1), clean (1), number of snapshot records (1), length of the boot id (1)
//	144  length of the bootstrap (4), zero (4)
//	152  boot id, bootstrap, then each snapshot record with its length (4) before it
func appendSlot(buf []byte, s *Slot) ([]byte, error) {
	switch {
	case len(s.Snapshots) > SlotSnapshotsMax:
		return nil, fmt.Errorf("segment: slot with %d snapshot records, at most %d", len(s.Snapshots), SlotSnapshotsMax)
	case len(s.BootID) > SlotBootIDMax:
		return nil, fmt.Errorf("segment: slot with a boot id of %d bytes, at most %d", len(s.BootID), SlotBootIDMax)
	}
	length := slotFixed + len(s.BootID) + len(s.Bootstrap)
	for _, r := range s.Snapshots {
		length += 4 + len(r)
	}
	if length > SlotImageMax {
		return nil, fmt.Errorf("segment: slot of %d bytes, at most %d: snapshot records or bootstrap too long", length, SlotImageMax)
	}
	b := make([]byte, length)
	binary.BigEndian.PutUint32(b[8:], slotMagic)
	binary.BigEndian.PutUint32(b[12:], slotVersion)
	binary.BigEndian.PutUint32(b[16:], uint32(length))
	for i, v := range [...]uint64{s.Seq, s.Generation, s.Term, s.Vote, s.Commit, s.Mark, uint64(s.MarkOffset), uint64(s.Created)} {
		binary.BigEndian.PutUint64(b[24+8*i:], v)
	}
	copy(b[88:], s.Identity.Cluster[:])
	copy(b[104:], s.Identity.Topic[:])
	binary.BigEndian.PutUint64(b[120:], s.Identity.Key.Shard)
	binary.BigEndian.PutUint64(b[128:], s.Identity.Key.Replica)
	binary.BigEndian.PutUint32(b[136:], uint32(s.Identity.Partition))
	b[140] = s.Role
	if s.Clean {
		b[141] = 1
	}
	b[142] = uint8(len(s.Snapshots))
	b[143] = uint8(len(s.BootID))
	binary.BigEndian.PutUint32(b[144:], uint32(len(s.Bootstrap)))
	at := slotFixed
	at += copy(b[at:], s.BootID)
	at += copy(b[at:], s.Bootstrap)
	for _, r := range s.Snapshots {
		binary.BigEndian.PutUint32(b[at:], uint32(len(r)))
		at += 4 + copy(b[at+4:], r)
	}
	binary.BigEndian.PutUint64(b, xxhash.Sum64(b[8:]))
	return appendSectors(buf, b), nil
}

// Ways in which a place may hold no image.
var (
	// errSlotVersion: whole, but of a version this release does not know.
	errSlotVersion = errors.New("segment: slot of an unknown format version")
	// errSlotTorn: sectors of two images, each of them right by itself.
	errSlotTorn = errors.New("slot image torn by a power cut")
)

// decodeSlot reads the image at the start of place, which is whole sectors.
func decodeSlot(place []byte) (Slot, error) {
	var s Slot
	if len(place) < sectorSize || !sectorWritten(place[:sectorSize]) || binary.BigEndian.Uint32(place[8:]) != slotMagic {
		return s, errors.New("the first sector of a slot image is damaged")
	}
	length := int64(binary.BigEndian.Uint32(place[16:]))
	if length < slotFixed || length > SlotImageMax || sectorsFor(int(length)) > len(place) {
		return s, fmt.Errorf("slot image of impossible length %d", length)
	}
	place = place[:sectorsFor(int(length))]
	b := gatherSectors(nil, place)
	if rotten := rottenSector(place); rotten >= 0 {
		return s, fmt.Errorf("sector %d of a slot image is damaged", rotten/sectorSize)
	}
	if sum := xxhash.Sum64(b[8:length]); sum != binary.BigEndian.Uint64(b) {
		if len(place) > sectorSize {
			return s, errSlotTorn
		}
		return s, fmt.Errorf("slot image has hash %016x, its bytes %016x", binary.BigEndian.Uint64(b), sum)
	}
	if v := binary.BigEndian.Uint32(b[12:]); v != slotVersion {
		return s, fmt.Errorf("%w: %d, this release knows %d", errSlotVersion, v, slotVersion)
	}
	// In a torn image the last sector may be of a longer one before it that has the same bytes here: then nothing is missing.
	if !allZero(b[length:]) && len(place) == sectorSize {
		return s, errors.New("slot image with padding that is not zero")
	}
	for i, p := range [...]*uint64{&s.Seq, &s.Generation, &s.Term, &s.Vote, &s.Commit, &s.Mark} {
		*p = binary.BigEndian.Uint64(b[24+8*i:])
	}
	s.MarkOffset = int64(binary.BigEndian.Uint64(b[72:]))
	s.Created = int64(binary.BigEndian.Uint64(b[80:]))
	s.Identity.Cluster = [16]byte(b[88:])
	s.Identity.Topic = [16]byte(b[104:])
	s.Identity.Key = Key{binary.BigEndian.Uint64(b[120:]), binary.BigEndian.Uint64(b[128:])}
	s.Identity.Partition = int32(binary.BigEndian.Uint32(b[136:]))
	s.Role = b[140]
	if b[141] > 1 || binary.BigEndian.Uint32(b[20:]) != 0 || binary.BigEndian.Uint32(b[148:]) != 0 || b[142] > SlotSnapshotsMax {
		return s, errors.New("slot image with impossible fields")
	}
	s.Clean = b[141] == 1
	return s, decodeSlotTail(&s, b[slotFixed:length], int(b[142]), int(b[143]), int(binary.BigEndian.Uint32(b[144:])))
}

// decodeSlotTail reads the parts of variable length, which must fill b exactly.
func decodeSlotTail(s *Slot, b []byte, snapshots, bootID, bootstrap int) error {
	errTail := errors.New("slot image whose parts do not fill it")
	if bootID+bootstrap > len(b) {
		return errTail
	}
	s.BootID = string(b[:bootID])
	b = b[bootID:]
	if bootstrap > 0 {
		s.Bootstrap = append([]byte(nil), b[:bootstrap]...)
	}
	b = b[bootstrap:]
	for range snapshots {
		if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
			return errTail
		}
		n := int(binary.BigEndian.Uint32(b))
		s.Snapshots = append(s.Snapshots, append([]byte{}, b[4:4+n]...))
		b = b[4+n:]
	}
	if len(b) != 0 {
		return errTail
	}
	return nil
}

// CreateSlotFile makes the slot file in dir with s in both places. When it returns nil, file and name are durable; a crash before leaves
// no file of that name. It fails with fs.ErrExist when there is one. s.Seq is not used.
func CreateSlotFile(fsys vfs.FS, dir string, s Slot) (*SlotFile, error) {
	path := filepath.Join(dir, SlotFileName)
	if _, err := fsys.Stat(path); err == nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	content := make([]byte, slotFileSize)
	for place := range 2 {
		s.Seq = uint64(1 + place)
		image, err := appendSlot(nil, &s)
		if err != nil {
			return nil, err
		}
		copy(content[place*slotPlace:], image)
	}
	if err := vfs.WriteFileAtomic(fsys, path, content); err != nil {
		return nil, err
	}
	f, _, err := OpenSlotFile(fsys, dir)
	return f, err
}

// OpenSlotFile opens the slot file in dir and returns its newest image, which it has made durable: after a crash of the process alone it
// could still be in memory only, and Raft may act on it without another write.
//
// One place may hold a torn image, a mixture of old and new sectors, as a power cut in the middle of a write leaves it: the state is then
// that before this write. All else is damage, and the error a *CorruptionError: falling back to the older image when the newer one has
// rotted could take back a vote.
func OpenSlotFile(fsys vfs.FS, dir string) (*SlotFile, Slot, error) {
	path := filepath.Join(dir, SlotFileName)
	file, err := fsys.Open(path)
	if err != nil {
		return nil, Slot{}, err
	}
	f := &SlotFile{file: file, path: path}
	s, err := f.load()
	if err == nil {
		err = file.SyncData()
	}
	if err != nil {
		_ = file.Close()
		return nil, Slot{}, err
	}
	f.mu.durable = true
	return f, s, nil
}

// load reads both places and takes over the newest image.
func (f *SlotFile) load() (Slot, error) {
	images, errs, err := readSlotPlaces(f.file, f.path)
	if err != nil {
		return Slot{}, err
	}
	place, err := newestSlot(images, errs, f.path)
	if err != nil {
		return Slot{}, err
	}
	f.mu.identity = images[place].Identity
	f.mu.seq = images[place].Seq
	f.mu.place = place
	return images[place], nil
}

// newestSlot tells which place counts.
func newestSlot(images [2]Slot, errs [2]error, path string) (place int, err error) {
	damage := func(place int, reason string) (int, error) {
		return 0, &CorruptionError{File: path, Pos: int64(place) * slotPlace, Offset: -1, Reason: reason}
	}
	for place, err := range errs {
		if err != nil && err != errSlotTorn {
			return damage(place, err.Error())
		}
	}
	switch {
	case errs[0] != nil && errs[1] != nil:
		return damage(0, "both slot images are torn")
	case errs[0] != nil:
		return 1, nil
	case errs[1] != nil:
		return 0, nil
	case images[0].Identity != images[1].Identity:
		return damage(0, "the two slot images are of different replicas")
	case images[0].Seq == images[1].Seq:
		return damage(0, fmt.Sprintf("two slot images with sequence %d", images[0].Seq))
	case images[1].Seq > images[0].Seq:
		return 1, nil
	}
	return 0, nil
}

// readSlotPlaces decodes both places. errs says what is wrong with each; err is of the file as a whole, or says that an image is of a
// later release.
func readSlotPlaces(file vfs.File, path string) (images [2]Slot, errs [2]error, err error) {
	size, err := file.Size()
	if err != nil {
		return images, errs, err
	}
	if size != slotFileSize {
		return images, errs, &CorruptionError{File: path, Pos: min(size, slotFileSize), Offset: -1,
			Reason: fmt.Sprintf("slot file of %d bytes, expected %d", size, slotFileSize)}
	}
	buf := make([]byte, slotFileSize)
	if n, err := file.ReadAt(buf, 0); err != nil && !(err == io.EOF && n == len(buf)) {
		return images, errs, err
	}
	for place := range 2 {
		images[place], errs[place] = decodeSlot(buf[place*slotPlace:][:slotPlace])
		if errors.Is(errs[place], errSlotVersion) {
			return images, errs, fmt.Errorf("%s: %w", path, errs[place])
		}
	}
	return images, errs, nil
}

// Put writes s as the newest image, with the next sequence (see [SlotFile.Seq]), and syncs nothing. It becomes durable by Sync, or by a
// journal record of the returned Write, after which the caller calls MarkDurable with the sequence.
//
// As long as an image is not known to be durable, the next one takes its place, so that the last durable one is never at stake. After a
// failed write or sync every Put fails.
func (f *SlotFile) Put(s Slot) (Write, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.err != nil {
		return Write{}, f.mu.err
	}
	if s.Identity != f.mu.identity {
		return Write{}, fmt.Errorf("%w: slot of %v written to %s of %v", ErrForeign, s.Identity.Key, f.path, f.mu.identity.Key)
	}
	s.Seq = f.mu.seq + 1
	image, err := appendSlot(nil, &s)
	if err != nil {
		return Write{}, err
	}
	place := f.mu.place
	if f.mu.durable {
		place = 1 - place
	}
	pos := int64(place) * slotPlace
	if _, err := f.file.WriteAt(image, pos); err != nil {
		f.mu.err = fmt.Errorf("%w: writing %s: %w", ErrFailed, f.path, err)
		return Write{}, f.mu.err
	}
	f.mu.seq, f.mu.place, f.mu.durable = s.Seq, place, false
	return Write{
		Key:        s.Identity.Key,
		Generation: s.Generation,
		File:       SlotFileName,
		Slot:       true,
		Pos:        pos,
		Data:       [][]byte{image},
		Size:       len(image),
	}, nil
}

// Seq is the sequence of the newest image, durable or not.
func (f *SlotFile) Seq() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.seq
}

// MarkDurable says that the image with that sequence is in the journal. It has no effect when a newer image was put meanwhile.
func (f *SlotFile) MarkDurable(seq uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if seq == f.mu.seq {
		f.mu.durable = true
	}
}

// Sync makes the newest image durable. A Put waits for it, since it might else replace the very image.
func (f *SlotFile) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.err != nil {
		return f.mu.err
	}
	if err := f.file.SyncData(); err != nil {
		f.mu.err = fmt.Errorf("%w: syncing %s: %w", ErrFailed, f.path, err)
		return f.mu.err
	}
	f.mu.durable = true
	return nil
}

// SyncJournaled implements Syncer, for the journal records of slots.
func (f *SlotFile) SyncJournaled() error { return f.Sync() }

// Close closes the file and syncs nothing.
func (f *SlotFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.err == nil {
		f.mu.err = fmt.Errorf("%w: %s", ErrClosed, f.path)
	}
	return f.file.Close()
}

// redoSlot writes one image from the journal to its place, unless the file already has one with the same or a later sequence: a slot
// synced directly after it was journaled must not be taken back. It reports whether it wrote, and syncs nothing.
//
// Both places may be torn here: images that are durable by the journal alone were in both when the power was cut.
func redoSlot(file vfs.File, path string, pos int64, image []byte) (bool, error) {
	redo, err := decodeSlot(image)
	if err != nil {
		return false, fmt.Errorf("slot image in the journal: %w", err)
	}
	if pos != 0 && pos != slotPlace {
		return false, fmt.Errorf("slot image in the journal for position %d", pos)
	}
	images, errs, err := readSlotPlaces(file, path)
	if err != nil {
		return false, err
	}
	for place, err := range errs {
		switch {
		case err == errSlotTorn:
		case err != nil:
			return false, &CorruptionError{File: path, Pos: int64(place) * slotPlace, Offset: -1, Reason: err.Error()}
		case images[place].Identity != redo.Identity:
			return false, fmt.Errorf("%w: %s is of %v, the image in the journal of %v", ErrForeign, path, images[place].Identity.Key, redo.Identity.Key)
		case images[place].Seq >= redo.Seq:
			return false, nil
		}
	}
	_, err = file.WriteAt(image, pos)
	return err == nil, err
}
