// SPDX-License-Identifier: Apache-2.0

package simulator

var capabilities = []string{
	"networks-management", "static-ipaddresses", "ipv6-deployment-ubuntu", "devices-management", "storage-deployment-ubuntu",
	"network-deployment-ubuntu", "bridging-interface-ubuntu", "bridging-automatic-ubuntu", "authenticate-api",
}

func (rq *request) readVersion() (any, error) {
	return object{"version": rq.version.String(), "subversion": "", "capabilities": capabilities}, nil
}

func (rq *request) whoami() (any, error) { return renderUser(rq.user), nil }

// User is an account with its API keys.
type User struct {
	Name  string
	Admin bool
	Keys  []string // consumer:token:secret
}

// Users returns the accounts that can log in, those of the description first and in its order.
func (s *Simulator) Users() []User {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]User, 0, len(s.db.users))
	for _, u := range s.db.users {
		one := User{Name: u.name, Admin: u.admin}
		for _, key := range u.keys {
			one.Keys = append(one.Keys, key.consumer+":"+key.token+":"+key.secret)
		}
		out = append(out, one)
	}
	return out
}
