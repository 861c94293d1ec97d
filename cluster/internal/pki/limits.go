package pki

import "time"

// Limits of what is read, kept and signed.
const (
	// nameBytesMax bounds the name of a process: the length of a DNS label, like a pod's host name.
	nameBytesMax = 63
	// requestBytesMax bounds a certificate request; one with a P-256 key has about 250 bytes.
	requestBytesMax = 4 << 10
	// certificateBytesMax bounds one certificate; ours have about 600 bytes.
	certificateBytesMax = 16 << 10
	// tokenFileBytesMax bounds a file with a token, which has 122 bytes.
	tokenFileBytesMax = 1 << 10
	// keyFileBytesMax bounds a file with a key and its certificates.
	keyFileBytesMax = 64 << 10
	// tokensMax bounds the tokens of an authority, including expired ones.
	tokensMax = 4096
	// tokensFileBytesMax bounds tokens.json; a token takes up to 320 bytes.
	tokensFileBytesMax = 2 << 20
	// namesMax bounds the workers' names that have a holder.
	namesMax = 4096
	// issuedFileBytesMax bounds issued.json; a name takes up to 400 bytes, a token 200.
	issuedFileBytesMax = 4 << 20
	// lockWait bounds the wait for another process that has locked the authority.
	lockWait = 5 * time.Second
)

// Times of certificates and tokens.
const (
	// ClockSkew is how far the clocks of two hosts may differ: the validity of a certificate begins
	// that long before it is signed.
	ClockSkew = 5 * time.Minute
	// CertificateTTL is how long a certificate from Join or Renew is valid.
	CertificateTTL = 24 * time.Hour
	// rootYears is how many years an authority is valid.
	rootYears = 10
	// certificateTTLMax bounds the validity of any other certificate.
	certificateTTLMax = 90 * 24 * time.Hour
	// expiredKept is how long an expired token stays listed.
	expiredKept = 7 * 24 * time.Hour
)

// Times of a Keeper.
const (
	// renewTimeout bounds one try.
	renewTimeout = 30 * time.Second
	// retryMin and retryMax bound the pause between tries, which doubles.
	retryMin = time.Second
	retryMax = 5 * time.Minute
	// wakeMax bounds a sleep, because timers may stand still while a machine is suspended.
	wakeMax = time.Minute
)
