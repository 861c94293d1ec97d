package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/cluster/discovery"
)

func init() {
	discovery.Register("dns", Hosts(net.DefaultResolver))
	discovery.Register("dns+srv", Services(net.DefaultResolver))
}

// Hosts returns the open function for addresses with a name and a port, which uses the resolver r.
func Hosts(r *net.Resolver) func(*url.URL) (discovery.Finder, error) {
	return func(u *url.URL) (discovery.Finder, error) {
		host, port, err := net.SplitHostPort(u.Host)
		if err != nil || host == "" {
			return nil, errors.New("want dns://NAME:PORT")
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 0 {
			return nil, fmt.Errorf("the port is %q; want a number from 1 to 65535", port)
		}
		return finder{func(ctx context.Context) ([]string, error) { return lookupHost(ctx, r, host, uint16(number)) }}, nothingElse(u)
	}
}

// Services returns the open function for addresses with the name of SRV records, which uses the resolver r.
func Services(r *net.Resolver) func(*url.URL) (discovery.Finder, error) {
	return func(u *url.URL) (discovery.Finder, error) {
		if strings.Contains(u.Host, ":") {
			return nil, errors.New("want dns+srv://_SERVICE._tcp.NAME; the port is in the records")
		}
		return finder{func(ctx context.Context) ([]string, error) { return lookupService(ctx, r, u.Host) }}, nothingElse(u)
	}
}

// nothingElse refuses a path or a query after a name.
func nothingElse(u *url.URL) error {
	if u.Path != "" && u.Path != "/" || u.RawQuery != "" {
		return fmt.Errorf("remove what follows %s", u.Host)
	}
	return nil
}

type finder struct {
	find func(context.Context) ([]string, error)
}

func (f finder) Find(ctx context.Context) ([]string, error) { return f.find(ctx) }

// Close does nothing.
func (finder) Close() error { return nil }

func lookupHost(ctx context.Context, r *net.Resolver, host string, port uint16) ([]string, error) {
	ips, err := r.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, ip := range ips {
		all = append(all, net.JoinHostPort(ip.Unmap().String(), strconv.Itoa(int(port))))
	}
	return all, nil
}

// lookupService looks up the records' targets in order. It skips a target without an address.
func lookupService(ctx context.Context, r *net.Resolver, name string) ([]string, error) {
	_, records, err := r.LookupSRV(ctx, "", "", name)
	if err != nil && len(records) == 0 { // otherwise the error is about records that were left out
		return nil, err
	}
	var all []string
	var errs []error
	for _, srv := range records[:min(len(records), discovery.LimitFound)] {
		if srv.Target == "." || srv.Port == 0 {
			continue // RFC 2782: the service does not exist
		}
		found, err := lookupHost(ctx, r, srv.Target, srv.Port)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, found...)
	}
	if len(all) == 0 {
		if len(errs) == 0 {
			errs = append(errs, fmt.Errorf("%w: %s has no target", discovery.ErrNone, name))
		}
		return nil, errors.Join(errs...)
	}
	return all, nil
}
