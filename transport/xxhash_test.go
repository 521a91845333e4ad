package transport

import "testing"

// The vectors are from the reference implementation, over bytes i*7+3.
func TestSum64(t *testing.T) {
	b := make([]byte, 101)
	for i := range b {
		b[i] = byte(i*7 + 3)
	}
	for _, v := range []struct {
		seed uint64
		n    int
		want uint64
	}{
		{0x0, 0, 0xef46db3751d8e999},
		{0x0, 1, 0x1f25c8d0bc1f4bb6},
		{0x0, 3, 0x31d2363f52e564c9},
		{0x0, 4, 0x9bb64b7d66ee9fda},
		{0x0, 7, 0x9a7b149959ce60d8},
		{0x0, 8, 0xdab99d95c6f90092},
		{0x0, 12, 0xd52e407833af5133},
		{0x0, 31, 0xa2aa5f33cc4a6119},
		{0x0, 32, 0x23c3c17ef790fd97},
		{0x0, 33, 0x50a7cfc7ba588784},
		{0x0, 63, 0x5e3e54b431c7493c},
		{0x0, 64, 0xeb64b3ef6eeb01f},
		{0x0, 101, 0xbad4d3bf033bda4c},
		{0x1, 0, 0xd5afba1336a3be4b},
		{0x1, 1, 0x610f93f8c89889fe},
		{0x1, 3, 0x2d80e074130d0176},
		{0x1, 4, 0x5ec9fdd10fcbcb0e},
		{0x1, 7, 0xd8b4a941715fee31},
		{0x1, 8, 0xf119f5b26c0020ab},
		{0x1, 12, 0x37851f0d89d23966},
		{0x1, 31, 0xaaca4e41ffcae21c},
		{0x1, 32, 0x7421b79a02b42132},
		{0x1, 33, 0x17b3df313de9a40e},
		{0x1, 63, 0xb1abb4a5ad0e2943},
		{0x1, 64, 0x2d0457940c5a93f4},
		{0x1, 101, 0xb491b8d4e882d11},
		{0x9e3779b97f4a7c15, 0, 0xc4349fc93c010000},
		{0x9e3779b97f4a7c15, 1, 0x79826bcd749d267a},
		{0x9e3779b97f4a7c15, 3, 0x78efd77575e26575},
		{0x9e3779b97f4a7c15, 4, 0x6f0a6c97d68bf353},
		{0x9e3779b97f4a7c15, 7, 0xd97ede93c9d66a0d},
		{0x9e3779b97f4a7c15, 8, 0xa2f1e28437a78a1b},
		{0x9e3779b97f4a7c15, 12, 0xbcc9f0d616ff9a7b},
		{0x9e3779b97f4a7c15, 31, 0x755437271d1d0a84},
		{0x9e3779b97f4a7c15, 32, 0xbf624b932c090428},
		{0x9e3779b97f4a7c15, 33, 0x7aceaf1e9d34ea35},
		{0x9e3779b97f4a7c15, 63, 0x2c8ddce5c85d0d9d},
		{0x9e3779b97f4a7c15, 64, 0x4af341f14e3a6fc9},
		{0x9e3779b97f4a7c15, 101, 0x9a5f95077eaecb78},
	} {
		if got := sum64(v.seed, b[:v.n]); got != v.want {
			t.Errorf("seed %#x, %d bytes: %#x, want %#x", v.seed, v.n, got, v.want)
		}
	}
}
