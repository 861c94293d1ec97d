package pki

import "time"

// The limits of what is read, kept and signed.
const (
	// nameBytesMax bounds the name of a process: a label of DNS, as a pod's host name is.
	nameBytesMax = 63
	// requestBytesMax bounds a certificate request; one with a P-256 key has about 250.
	requestBytesMax = 4 << 10
	// certificateBytesMax bounds one certificate; ours have about 600.
	certificateBytesMax = 16 << 10
	// tokenFileBytesMax bounds a file that holds a token, which has 122 bytes.
	tokenFileBytesMax = 1 << 10
	// keyFileBytesMax bounds a file that holds a key and its certificates.
	keyFileBytesMax = 64 << 10
	// tokensMax bounds the tokens of an authority, those expired included.
	tokensMax = 4096
	// tokensFileBytesMax bounds tokens.json; a token takes up to 320 bytes.
	tokensFileBytesMax = 2 << 20
	// namesMax bounds the names of workers that belong to somebody.
	namesMax = 4096
	// issuedFileBytesMax bounds issued.json; a name takes up to 400 bytes, a token 200.
	issuedFileBytesMax = 4 << 20
	// lockWait bounds the wait for another process that changes the same authority.
	lockWait = 5 * time.Second
)

// Times of certificates and tokens.
const (
	// ClockSkew is how far the clocks of two hosts may differ: certificates are valid from
	// that long before they are signed.
	ClockSkew = 5 * time.Minute
	// CertificateTTL is the life of a certificate that SignJoin signs.
	CertificateTTL = 24 * time.Hour
	// rootYears is the life of an authority.
	rootYears = 10
	// certificateTTLMax bounds the life of any other certificate.
	certificateTTLMax = 90 * 24 * time.Hour
	// expiredKept is how long an expired token is still listed.
	expiredKept = 7 * 24 * time.Hour
)

// Times of a Keeper.
const (
	// renewTimeout bounds one attempt.
	renewTimeout = 30 * time.Second
	// retryMin and retryMax bound the pause between attempts; it doubles.
	retryMin = time.Second
	retryMax = 5 * time.Minute
	// wakeMax bounds a sleep: timers may stand still while a machine is suspended, the
	// calendar does not.
	wakeMax = time.Minute
)
