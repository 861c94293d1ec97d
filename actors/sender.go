package actors

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/grid"
	"github.com/troupe-ml/troupe/internal/wire"
	"github.com/troupe-ml/troupe/scheduler"
	"github.com/troupe-ml/troupe/telemetry/event"
)

// ErrSender: a message came from a process that may not send it. It wraps ErrMessage.
var ErrSender = fmt.Errorf("%w: its sender may not send it", ErrMessage)

// Sender says which processes of an attempt may send a kind of message.
type Sender string

// The senders.
const (
	sentByCoordinator Sender = "the coordinator"
	sentByRank        Sender = "the process of the rank that the message names"
	sentByProducer    Sender = "the process of the rank that computes the message's content"
	sentByConsumer    Sender = "the process of a rank that takes the chunk's output"
	sentByReader      Sender = "a process whose ranks read data, for one of its ranks"
	sentByHolder      Sender = "a process whose ranks hold the parameter"
	sentByCopy        Sender = "the process of a rank with the same weights and optimizer state, or with the rank or its shadow"
	sentByShadow      Sender = "the process with the shadow of the rank that the message names"
)

// MessageKind is a kind of message between processes, by its name on the wire.
type MessageKind struct {
	Name   string
	ToBoss bool // for the coordinator, not for a stage
	Bulk   bool // travels over the lane
	From   Sender
}

// rule is a MessageKind with the check of the sender; nil: the sender must be the coordinator.
type rule struct {
	MessageKind
	to    direction
	check func(c *Codec, w *wire.Message, from string) error
}

// rules holds every kind of message that may leave its process. All others are refused.
var rules = makeRules(
	forStages("peers", sentByCoordinator, (*wire.Message_Peers)(nil), nil),
	forStages("order", sentByCoordinator, (*wire.Message_Order)(nil), nil),
	forStages("apply", sentByCoordinator, (*wire.Message_Apply)(nil), nil),
	forStages("save_state", sentByCoordinator, (*wire.Message_SaveState)(nil), nil),
	forStages("write_state", sentByCoordinator, (*wire.Message_WriteState)(nil), nil),
	forStages("send_state", sentByCoordinator, (*wire.Message_SendState)(nil), nil),
	forStages("drop_state", sentByCoordinator, (*wire.Message_DropState)(nil), nil),
	forStages("halt", sentByCoordinator, (*wire.Message_Halt)(nil), nil),
	forStages("leave", sentByCoordinator, (*wire.Message_Leave)(nil), nil),
	overLane(forStages("data", sentByCoordinator, (*wire.Message_Data)(nil), nil)),
	overLane(forStages("weight", sentByCoordinator, (*wire.Message_Weight)(nil), nil)),
	overLane(forStages("transfer", sentByProducer, (*wire.Message_Transfer)(nil), (*Codec).checkTransfer)),
	overLane(forStages("tied_gradient", sentByProducer, (*wire.Message_TiedGradient)(nil), (*Codec).checkTied)),
	forStages("read_state", sentByCopy, (*wire.Message_ReadState)(nil), (*Codec).checkReadState),
	overLane(forStages("rank_state", sentByCopy, (*wire.Message_RankState)(nil), (*Codec).checkRankState)),
	overLane(forStages("step_gradient", sentByRank, (*wire.Message_StepGradient)(nil), (*Codec).checkGradient)),
	forStages("credit", sentByConsumer, (*wire.Message_Credit)(nil), (*Codec).checkCredit),
	forBoss("data_request", sentByReader, (*wire.Message_DataRequest)(nil), (*Codec).checkRequest),
	forBoss("read_weight", sentByHolder, (*wire.Message_ReadWeight)(nil), (*Codec).checkRead),
	ofRank("stage_done", (*wire.Message_StageDone)(nil), func(w *wire.Message) int32 { return w.GetStageDone().GetRank() }),
	ofRank("applied", (*wire.Message_Applied)(nil), func(w *wire.Message) int32 { return w.GetApplied().GetRank() }),
	ofRank("stage_ready", (*wire.Message_StageReady)(nil), func(w *wire.Message) int32 { return w.GetStageReady().GetRank() }),
	ofRank("state_written", (*wire.Message_StateWritten)(nil), func(w *wire.Message) int32 { return w.GetStateWritten().GetRank() }),
	ofRank("halted", (*wire.Message_Halted)(nil), func(w *wire.Message) int32 { return w.GetHalted().GetRank() }),
	ofRank("left", (*wire.Message_Left)(nil), func(w *wire.Message) int32 { return w.GetLeft().GetRank() }),
	forBoss("shadowed", sentByShadow, (*wire.Message_Shadowed)(nil), (*Codec).checkShadowed),
	overLane(forBoss("stage_state", sentByRank, (*wire.Message_StageState)(nil), (*Codec).checkState)),
	forBoss("failed", sentByRank, (*wire.Message_Failed)(nil), (*Codec).checkFailed),
)

type keyedRule struct {
	kind reflect.Type
	rule
}

func forStages(name string, s Sender, kind any, check func(*Codec, *wire.Message, string) error) keyedRule {
	return keyedRule{reflect.TypeOf(kind), rule{MessageKind{Name: name, From: s}, toStages, check}}
}

func forBoss(name string, s Sender, kind any, check func(*Codec, *wire.Message, string) error) keyedRule {
	return keyedRule{reflect.TypeOf(kind), rule{MessageKind{Name: name, ToBoss: true, From: s}, toCoordinator, check}}
}

// ofRank makes the rule of a report about a rank, for the coordinator.
func ofRank(name string, kind any, rank func(*wire.Message) int32) keyedRule {
	return forBoss(name, sentByRank, kind, func(c *Codec, w *wire.Message, from string) error { return c.checkRank(rank(w), from) })
}

func overLane(r keyedRule) keyedRule {
	r.Bulk = true
	return r
}

func makeRules(all ...keyedRule) map[reflect.Type]rule {
	m := make(map[reflect.Type]rule)
	for _, r := range all {
		m[r.kind] = r.rule
	}
	return m
}

// MessageKinds lists all kinds of messages between processes, by name.
func MessageKinds() (all []MessageKind) {
	for _, r := range rules {
		all = append(all, r.MessageKind)
	}
	slices.SortFunc(all, func(a, b MessageKind) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// checkSender refuses a message whose kind is not for this process, or that the process at an
// address may not send.
func (c *Codec) checkSender(w *wire.Message, from string, bulk bool) error {
	r, known := rules[reflect.TypeOf(w.GetKind())]
	switch {
	case !known || r.to != c.takes || r.Bulk != bulk:
		side := "a stage"
		if c.takes == toCoordinator {
			side = "the coordinator"
		}
		return fmt.Errorf("%w: %s does not take %T", ErrMessage, side, w.GetKind())
	case r.check != nil:
		return r.check(c, w, from)
	case from != c.boss:
		return fmt.Errorf("%w: %s came from %s, but only the coordinator may send it", ErrSender, r.Name, from)
	}
	return nil
}

// has reports whether the process at an address has a rank for which is returns true. The process
// of this codec is at no address.
func (s *Spec) has(address string, is func(rank int) bool) bool {
	if address == "" {
		return false
	}
	for rank, host := range s.Hosts {
		if host == address && is(rank) {
			return true
		}
	}
	return false
}

// stageOf returns the pipeline stage that a rank computes.
func (s *Spec) stageOf(rank int) int { return s.place(rank)[grid.Pipeline] }

// hasStage reports whether the process at an address has ranks of a stage.
func (s *Spec) hasStage(address string, stage int) bool {
	return s.has(address, func(rank int) bool { return s.stageOf(rank) == stage })
}

// reads reports whether the process at an address may have the data of a chunk: it has ranks that
// compute the chunk, the chunk reads data, and the process is on the edge if data must stay there.
func (s *Spec) reads(address string, chunk int32) bool {
	if chunk < 0 || int(chunk) >= s.Table.NumChunks || s.Readers != nil && !s.Readers[chunk] {
		return false
	}
	stage := s.Table.RankOf(int(chunk))
	return s.hasStage(address, stage) && (!s.Edge || stage == 0)
}

// readsStarts reports whether the process at an address may know where documents start: it has ranks that compute the
// chunk. The lengths of documents may leave the edge, their tokens may not.
func (s *Spec) readsStarts(address string, chunk int32) bool {
	return s.Packed && chunk >= 0 && int(chunk) < s.Table.NumChunks && s.hasStage(address, s.Table.RankOf(int(chunk)))
}

// onlyStarts reports whether a request is for nothing else.
func onlyStarts(r *wire.DataRequest) bool {
	return r.GetStarts() && !r.GetTokens() && !r.GetTargets() && len(r.GetFields()) == 0
}

// holds reports whether the process at an address may have a parameter's stored weight: it has
// ranks of a stage that uses it, and of stage 0 if that stage's weights must stay on the edge.
func (s *Spec) holds(address, param string) bool {
	if s.Edge && s.EdgeParams[param] {
		return s.hasStage(address, 0)
	}
	return s.has(address, func(rank int) bool { return s.Holders == nil || slices.Contains(s.Holders[param], s.stageOf(rank)) })
}

func (c *Codec) checkRank(rank int32, from string) error {
	if _, err := c.remoteRank(rank); err != nil {
		return err
	}
	if host := c.spec.host(int(rank)); host != from {
		return fmt.Errorf("%w: the message is about rank %d of %s, but came from %s", ErrSender, rank, host, from)
	}
	return nil
}

func (c *Codec) checkFailed(w *wire.Message, from string) error {
	name := w.GetFailed().GetActor()
	if !c.spec.has(from, func(rank int) bool { return c.spec.stageName(rank) == name }) {
		return fmt.Errorf("%w: a failure of the actor %.100q, which %s does not have", ErrSender, name, from)
	}
	return nil
}

// checkState checks that a rank sends only parameters that its stage uses.
func (c *Codec) checkState(w *wire.Message, from string) error {
	s := w.GetStageState()
	if err := c.checkRank(s.GetRank(), from); err != nil || c.spec.Holders == nil {
		return err
	}
	stage := c.spec.stageOf(int(s.GetRank()))
	for _, v := range s.GetSaved() {
		param := v.GetName()
		if v.GetPart() != "" {
			param = strings.TrimPrefix(param, v.GetPart()+".")
		}
		if !slices.Contains(c.spec.Holders[param], stage) {
			return fmt.Errorf("%w: got the state of %.100q from rank %d, whose stage does not use it", ErrSender, v.GetName(), s.GetRank())
		}
	}
	return nil
}

// checkRequest checks that a request for data comes from a process that reads them, for one of its
// ranks.
func (c *Codec) checkRequest(w *wire.Message, from string) error {
	r := w.GetDataRequest()
	if err := c.checkData(event.Phase(r.GetPhase()), r.GetChunk(), r.GetMicrobatch()); err != nil {
		return err
	}
	if !c.spec.reads(from, r.GetChunk()) && (!onlyStarts(r) || !c.spec.readsStarts(from, r.GetChunk())) {
		err := fmt.Errorf("%w: a request for the data of chunk %d from %s, which has no rank that reads them", ErrSender, r.GetChunk(), from)
		if c.spec.Edge && !c.spec.hasStage(from, 0) {
			err = fmt.Errorf("%w: %w", err, ErrEdge)
		}
		return err
	}
	stage := c.spec.Table.RankOf(int(r.GetChunk()))
	if !c.spec.has(from, func(rank int) bool {
		return c.spec.stageOf(rank) == stage && r.GetReplyTo().GetId() == actorID(c.id.attempt, c.spec.stageName(rank))
	}) {
		return fmt.Errorf("%w: a request for data for %.100q, which is not a rank of %s with chunk %d", ErrSender, r.GetReplyTo().GetId(), from,
			r.GetChunk())
	}
	return nil
}

func (c *Codec) checkRead(w *wire.Message, from string) error {
	r := w.GetReadWeight()
	switch {
	case !c.spec.holds(from, r.GetName()):
		err := fmt.Errorf("%w: a request for the weight %.100q from %s, which has no rank that uses it", ErrSender, r.GetName(), from)
		if c.spec.Edge && c.spec.EdgeParams[r.GetName()] {
			err = fmt.Errorf("%w: %w", err, ErrEdge)
		}
		return err
	case r.GetReplyTo().GetId() != SupervisorID(c.id.attempt):
		return fmt.Errorf("%w: a request for a weight for the unexpected actor %.100q", ErrMessage, r.GetReplyTo().GetId())
	}
	return nil
}

// hasCopy reports whether the process at an address, "" for this one, has a rank with the same weights and optimizer state as a rank.
func (s *Spec) hasCopy(address string, rank int) bool {
	return s.Copies != nil && slices.ContainsFunc(s.Copies(rank), func(other int) bool { return other != rank && s.host(other) == address })
}

// mayRead reports whether the process at an address may read the state of a rank or, with shadow, that of a shadow which the rank holds:
// it has a rank with the same state, the shadow of the rank, or the rank of the shadow.
func (s *Spec) mayRead(address string, rank, shadow int) bool {
	if shadow == 0 {
		return s.hasCopy(address, rank) || s.shadowHere(address, rank)
	}
	return s.ShadowAt(shadow-1) == rank && s.host(shadow-1) == address
}

// checkReadState checks that a request for the state of a rank here, or for a shadow here, comes from a process that may have it.
func (c *Codec) checkReadState(w *wire.Message, from string) error {
	r := w.GetReadState()
	rank, shadow := int(r.GetRank()), int(r.GetShadow())
	switch {
	case rank < 0 || rank >= c.spec.ranks() || c.spec.host(rank) != "":
		return fmt.Errorf("%w: a request for the state of rank %d, which is not in this process", ErrMessage, rank)
	case shadow < 0 || shadow > c.spec.ranks() || from == "" || !c.spec.mayRead(from, rank, shadow):
		return fmt.Errorf("%w: a request for the state of rank %d (shadow %d) from %s, which has no rank and no shadow with it", ErrSender,
			rank, shadow, from)
	}
	id := r.GetReplyTo().GetId()
	forRank := id == SupervisorID(c.id.attempt) && (shadow != 0 || c.spec.hasCopy(from, rank))
	forShadow := shadow == 0 && id == c.holderID(rank) && c.spec.shadowHere(from, rank)
	if !forRank && !forShadow {
		return fmt.Errorf("%w: a request for the state of rank %d for the unexpected actor %.100q", ErrMessage, rank, id)
	}
	return nil
}

// holderID returns the id of the actor that holds the shadow of a rank; "": there is none.
func (c *Codec) holderID(rank int) string {
	h := c.spec.ShadowAt(rank)
	if h < 0 {
		return ""
	}
	return actorID(c.id.attempt, c.spec.stageName(h))
}

// checkRankState checks that the state of a rank comes from its process, and that a rank or a shadow here has the same; or that the state
// of a shadow comes from its process, for a rank here.
func (c *Codec) checkRankState(w *wire.Message, from string) error {
	rank, shadow := w.GetRankState().GetRank(), w.GetRankState().GetShadow()
	if err := c.checkRank(rank, from); err != nil {
		return err
	}
	if shadow < 0 || int(shadow) > c.spec.ranks() || !c.spec.mayRead("", int(rank), int(shadow)) {
		return fmt.Errorf("%w: got the state of rank %d (shadow %d), of which this process has no copy", ErrSender, rank, shadow)
	}
	return nil
}

// checkGradient checks that gradients come from the process of their rank, for a shadow here.
func (c *Codec) checkGradient(w *wire.Message, from string) error {
	rank := w.GetStepGradient().GetRank()
	if err := c.checkRank(rank, from); err != nil {
		return err
	}
	if !c.spec.shadowHere("", int(rank)) {
		return fmt.Errorf("%w: got the gradients of rank %d, whose shadow is not in this process", ErrSender, rank)
	}
	return nil
}

// checkShadowed checks that a report about a shadow comes from the process that has it.
func (c *Codec) checkShadowed(w *wire.Message, from string) error {
	rank, err := c.remoteRank(w.GetShadowed().GetRank())
	if err != nil {
		return err
	}
	if !c.spec.shadowHere(from, rank) {
		return fmt.Errorf("%w: the shadow of rank %d is not at %s", ErrSender, rank, from)
	}
	return nil
}

// inputPlace is a piece of a tensor that a rank here takes.
type inputPlace struct {
	kind        scheduler.EdgeKind
	chunk, rank int32
	slot, part  int32
}

// outputEdge is an edge on which a rank here uses credits.
type outputEdge struct {
	kind  scheduler.EdgeKind
	chunk int32
	skip  int32
}

// neighbours are the ranks with which those in this process exchange tensors.
type neighbours struct {
	producer map[inputPlace]int32
	taken    map[outputEdge][]int32
}

// findNeighbours follows the routes of all chunks in this process.
func (c *Codec) findNeighbours() neighbours {
	n := neighbours{make(map[inputPlace]int32), make(map[outputEdge][]int32)}
	s := &c.spec
	for rank := range s.ranks() {
		if s.host(rank) != "" {
			continue
		}
		for chunk := range s.Table.NumChunks {
			if s.Table.RankOf(chunk) != s.stageOf(rank) {
				continue
			}
			for kind, side := range s.edgesOf(s.Table, rank, chunk) {
				n.add(scheduler.EdgeKind(kind), int32(rank), int32(chunk), &side)
			}
		}
	}
	return n
}

func (n neighbours) add(kind scheduler.EdgeKind, rank, chunk int32, of *side) {
	for slot, x := range of.takes {
		for _, p := range x.pieces {
			n.producer[inputPlace{kind, chunk, rank, int32(slot), int32(p.Part)}] = x.peer(p)
		}
	}
	for _, to := range of.to {
		key := outputEdge{kind, chunk, to.skip}
		n.taken[key] = append(n.taken[key], to.ranks...)
	}
}

func (c *Codec) checkTransfer(w *wire.Message, from string) error {
	t := w.GetTransfer()
	if err := c.checkEdge(t.GetEdge(), t.GetTo()); err != nil {
		return err
	}
	at := inputPlace{scheduler.EdgeKind(t.GetEdge()), t.GetTo(), t.GetRank(), t.GetSlot(), t.GetPart()}
	rank, known := c.neighbours().producer[at]
	switch {
	case !known:
		return fmt.Errorf("%w: got piece %d of tensor %d for chunk %d on rank %d, which takes no such piece in this process", ErrMessage, at.part,
			at.slot,
			at.chunk, at.rank)
	case c.spec.host(int(rank)) != from || from == "":
		return fmt.Errorf("%w: a tensor for chunk %d came from %s, but rank %d of %s computes it", ErrSender, at.chunk, from, rank,
			c.spec.host(int(rank)))
	}
	return nil
}

func (c *Codec) checkTied(w *wire.Message, from string) error {
	rank := w.GetTiedGradient().GetFrom()
	if err := c.checkRank(rank, from); err != nil {
		return err
	}
	if !slices.Contains(c.spec.TiedRanks, c.spec.stageOf(int(rank))) {
		return fmt.Errorf("%w: got the gradient of a tied weight from rank %d, whose stage uses none", ErrSender, rank)
	}
	return nil
}

func (c *Codec) checkCredit(w *wire.Message, from string) error {
	m := w.GetCredit()
	if err := c.checkEdge(m.GetEdge(), m.GetChunk()); err != nil {
		return err
	}
	if skip := m.GetSkip(); skip < 0 || int(skip) > len(c.spec.Table.Skips) {
		return fmt.Errorf("%w: got a credit of skip %d, but there are %d skips", ErrMessage, skip, len(c.spec.Table.Skips))
	}
	takers := c.neighbours().taken[outputEdge{scheduler.EdgeKind(m.GetEdge()), m.GetChunk(), m.GetSkip()}]
	if from == "" || !slices.ContainsFunc(takers, func(rank int32) bool { return c.spec.host(int(rank)) == from }) {
		return fmt.Errorf("%w: got a credit for chunk %d from %s, which takes no output of it", ErrSender, m.GetChunk(), from)
	}
	return nil
}
