package stages

import (
	"encoding/json"
	"fmt"
)

// ropeByType are the keys of rotary positions in families in which the layers with a window have
// their own. In transformers 5 rope_parameters has an object for each of the two kinds of layers; in
// earlier releases rope_scaling and rope_theta are those of the layers that attend to all positions.
// full and window are the bases of the wavelengths if none is given. windowKey is the earlier key of
// the latter.
func ropeByType(full, window float64, windowKey string) keySet {
	return keySet{
		switches: []string{windowThetaSwitch},
		rules: func(r *reading) rules {
			r.theta.value, r.windowTheta.value = full, window
			own := rules{
				"rope_parameters": func(key string, v json.RawMessage) error { return r.readByType(key, v) },
				"rope_theta":      number(&r.theta, MinRopeTheta, MaxRopeTheta),
			}
			if windowKey != "rope_theta" {
				own[windowKey] = number(&r.windowTheta, MinRopeTheta, MaxRopeTheta)
				return own
			}
			// transformers takes rope_theta for the layers that attend to all positions, and the default
			// for the others; earlier releases took it for both.
			own["rope_theta"] = func(key string, v json.RawMessage) error {
				if err := number(&r.theta, MinRopeTheta, MaxRopeTheta)(key, v); err != nil {
					return err
				}
				if r.theta.value != window {
					return fmt.Errorf("%s is %s, which releases of transformers use for different layers: set rope_theta in rope_parameters.%s and in rope_parameters.%s",
						key, show(v), fullAttention, slidingAttention)
				}
				return nil
			}
			return own
		},
		read: func(r *reading, c *Config) error {
			if t := r.windowTheta.value; t != c.RopeTheta {
				c.WindowTheta = t
			}
			return nil
		},
		write: func(c Config, h *hfWritten) {
			all := map[string]any{
				slidingAttention: map[string]any{"rope_type": ropeDefault, "rope_theta": c.windowTheta()},
				fullAttention:    withTheta(h.RopeScaling, c.RopeTheta),
			}
			h.RopeTheta, h.RopeScaling = 0, nil
			h.add("rope_parameters", all)
		},
	}
}

// withTheta returns the settings of rope_scaling with those that stand beside it in earlier releases.
func withTheta(scaling *hfRope, theta float64) map[string]any {
	own := make(map[string]any)
	if b, err := json.Marshal(scaling); err != nil || scaling == nil || json.Unmarshal(b, &own) != nil {
		own["rope_type"] = ropeDefault
	}
	own["rope_theta"] = theta
	return own
}

// readByType reads rope_parameters with an object for each kind of layers.
func (r *reading) readByType(key string, v json.RawMessage) error {
	return eachMember(key, v, func(name string, m member) error {
		switch m.key {
		case fullAttention:
			r.rope.byType = true
			return r.rope.read(r)(name, m.value)
		case slidingAttention:
			return r.readWindowRope(name, m.value)
		}
		return fmt.Errorf("%s is %s, but only %s.%s and %[3]s.%[5]s are supported", name, show(m.value), key, fullAttention, slidingAttention)
	})
}

// readWindowRope reads the rotary positions of the layers with a window, which are not scaled.
func (r *reading) readWindowRope(key string, v json.RawMessage) error {
	known := rules{"rope_type": only(`"default"`), "type": only(`"default"`), "rope_theta": number(&r.windowTheta, MinRopeTheta, MaxRopeTheta),
		"partial_rotary_factor": only(`1`, `null`)}
	return eachMember(key, v, func(name string, m member) error {
		rule, ok := known[m.key]
		if !ok {
			return fmt.Errorf("%s is %s, but the layers with a window have no scaling", name, show(m.value))
		}
		return rule(name, m.value)
	})
}
