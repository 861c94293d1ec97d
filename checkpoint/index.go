package checkpoint

import (
	"errors"
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
)

// encodeIndex encodes model.safetensors.index.json, which says which shard has which tensor.
func encodeIndex(shardOf map[string]string, totalBytes int64) ([]byte, error) {
	var index struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	index.Metadata.TotalSize = totalBytes
	index.WeightMap = shardOf
	return encodeJSON(index)
}

// decodeIndex returns the shard of each tensor. It ignores everything else that other programs
// write beside the weight map.
func decodeIndex(text []byte) (shardOf map[string]string, err error) {
	dec, err := strictjson.NewDecoder(text)
	if err != nil {
		return nil, err
	}
	err = strictjson.Object(dec, func(key string) error {
		if key != "weight_map" {
			return strictjson.Skip(dec)
		}
		var err error
		shardOf, err = strictjson.StringMap(dec)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(shardOf) == 0 {
		return nil, errors.New("weight_map is missing or empty")
	}
	shards := make(map[string]struct{})
	for tensor, shard := range shardOf {
		if err := checkName(shard); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", strictjson.Quote(tensor), err)
		}
		if !strings.HasSuffix(shard, tensorsSuffix) {
			return nil, fmt.Errorf("tensor %s: the shard %q is not a %s file", strictjson.Quote(tensor), shard, tensorsSuffix)
		}
		shards[shard] = struct{}{}
		if len(shards) > ShardsMax {
			return nil, fmt.Errorf("the index has more than %d shards", ShardsMax)
		}
	}
	return shardOf, nil
}
