package pki

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// tokensVersion is the version of tokens.json that this package reads and writes.
const tokensVersion = 1

type tokensJSON struct {
	Version int         `json:"version"`
	Tokens  []tokenJSON `json:"tokens"`
}

type tokenJSON struct {
	ID           string `json:"id"`
	SecretSHA256 string `json:"secret_sha256"`
	Role         Role   `json:"role"`
	Expires      string `json:"expires"`
	Revoked      bool   `json:"revoked"`
	Uses         int64  `json:"uses"`
}

func encodeTokens(records []tokenRecord) ([]byte, error) {
	file := tokensJSON{Version: tokensVersion, Tokens: make([]tokenJSON, 0, len(records))}
	for _, r := range records {
		file.Tokens = append(file.Tokens, tokenJSON{
			ID:           r.ID,
			SecretSHA256: hex.EncodeToString(r.secretHash[:]),
			Role:         r.Role,
			Expires:      stamp(r.Expires),
			Revoked:      r.Revoked,
			Uses:         r.Uses,
		})
	}
	content, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return nil, err
	}
	return append(content, '\n'), nil
}

// decodeTokens parses tokens.json. Every key must appear exactly once, and no other key may appear, so
// that a misspelled revocation is not ignored.
func decodeTokens(content []byte) (map[string]tokenRecord, error) {
	dec, err := strictjson.NewDecoder(content)
	if err != nil {
		return nil, err
	}
	records := make(map[string]tokenRecord)
	keys := 0
	err = strictjson.Object(dec, func(key string) error {
		keys++
		switch key {
		case "version":
			version, err := strictjson.Uint(dec, 32)
			if err == nil && version != tokensVersion {
				err = fmt.Errorf("the version is %d; want %d", version, tokensVersion)
			}
			return err
		case "tokens":
			return strictjson.Array(dec, func() error {
				if len(records) == tokensMax {
					return fmt.Errorf("more than %d tokens", tokensMax)
				}
				r, err := decodeToken(dec)
				if err != nil {
					return fmt.Errorf("token %d: %w", len(records)+1, err)
				}
				if _, twice := records[r.ID]; twice {
					return fmt.Errorf("the token %s appears twice", r.ID)
				}
				records[r.ID] = r
				return nil
			})
		default:
			return fmt.Errorf("unknown key %s", strictjson.Quote(key))
		}
	})
	if err != nil {
		return nil, err
	}
	if keys != 2 {
		return nil, errors.New("version or tokens is missing")
	}
	if err := strictjson.End(dec); err != nil {
		return nil, err
	}
	return records, nil
}

func decodeToken(dec *json.Decoder) (tokenRecord, error) {
	var r tokenRecord
	keys := 0
	err := strictjson.Object(dec, func(key string) (err error) {
		keys++
		var text string
		switch key {
		case "id", "secret_sha256", "role", "expires":
			if text, err = strictjson.String(dec); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
		switch key {
		case "id":
			var id [idBytes]byte
			err = decodeHex(id[:], text)
			r.ID = text
		case "secret_sha256":
			err = decodeHex(r.secretHash[:], text)
		case "role":
			r.Role = Role(text)
			if err = r.Role.Check(); err == nil && r.Role == Coordinator {
				err = fmt.Errorf("%w: a token can't have the role coordinator", ErrRole)
			}
		case "expires":
			r.Expires, err = time.Parse(time.RFC3339, text)
			if err == nil && stamp(r.Expires) != text {
				err = fmt.Errorf("the time is %s; want the form %s", strictjson.Quote(text), stamp(r.Expires))
			}
			r.Expires = r.Expires.UTC()
		case "revoked":
			r.Revoked, err = decodeBool(dec)
		case "uses":
			r.Uses, err = strictjson.Uint(dec, 63)
		default:
			err = errors.New("unknown key")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", strictjson.Plain(key), err)
		}
		return nil
	})
	if err == nil && keys != 6 {
		err = errors.New("want id, secret_sha256, role, expires, revoked and uses")
	}
	return r, err
}

func decodeHex(into []byte, text string) error {
	raw, err := hex.DecodeString(text)
	// Encoded again and compared, because each value must have exactly one text.
	if err != nil || len(raw) != len(into) || hex.EncodeToString(raw) != text {
		return fmt.Errorf("%s; want %d hexadecimal digits, lower case", strictjson.Quote(text), 2*len(into))
	}
	copy(into, raw)
	return nil
}

func decodeBool(dec *json.Decoder) (bool, error) {
	token, err := dec.Token()
	if err != nil {
		return false, err
	}
	b, ok := token.(bool)
	if !ok {
		return false, errors.New("want true or false")
	}
	return b, nil
}
