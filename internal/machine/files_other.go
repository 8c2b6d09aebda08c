//go:build !unix

package machine

import "math"

func maxFiles() uint64 { return math.MaxUint64 }
