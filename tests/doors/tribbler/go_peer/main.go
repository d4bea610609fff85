// Clients, a holder of leases and a node of the ring in real Go, with Go's own net/rpc: what they see of our
// nodes is checked here, and the first surprise ends the program.
package main

import (
	"fmt"
	"log"
	"net"
	"net/http"
	"net/rpc"
	"net/rpc/jsonrpc"
	"os"
)

func main() {
	log.SetFlags(log.Lshortfile)
	if len(os.Args) < 3 {
		log.Fatal("usage: peer calls|leases|member|master HOST:PORT...")
	}
	nodes := os.Args[2:]
	switch os.Args[1] {
	case "calls":
		connections := dialEveryWay(nodes)
		storage(connections)
		tribbles(connections)
		membership(connections[0], nodes)
		mistakes(connections)
		strangeArguments(nodes[0])
		manyInFlight(connections)
	case "leases":
		connections := dialEveryWay(nodes)
		leases(connections, "StorageRPC")
		leases(connections, "CacheRPC")
	case "member":
		member(nodes[0])
	case "master":
		master(nodes[0], nodes[1])
	default:
		log.Fatalf("what is %q?", os.Args[1])
	}
	fmt.Println("ok")
}

// dialEveryWay connects to each node in all the ways that Go offers.
func dialEveryWay(nodes []string) []*rpc.Client {
	var found []*rpc.Client
	for _, node := range nodes {
		for _, dial := range []func(string, string) (*rpc.Client, error){rpc.DialHTTP, rpc.Dial, jsonrpc.Dial} {
			client, err := dial("tcp", node)
			must(err)
			found = append(found, client)
		}
	}
	return found
}

// serve offers a service as the course's servers do: Go RPC over HTTP. It answers with the address.
func serve(name string, service any) string {
	return serveAt("localhost:0", name, service)
}

func serveAt(address string, name string, service any) string {
	server := rpc.NewServer()
	must(server.RegisterName(name, service))
	mux := http.NewServeMux()
	mux.Handle(rpc.DefaultRPCPath, server)
	listener, err := net.Listen("tcp", address)
	must(err)
	go http.Serve(listener, mux)
	return fmt.Sprintf("localhost:%d", listener.Addr().(*net.TCPAddr).Port)
}

func must(err error) {
	if err != nil {
		log.Output(2, err.Error())
		os.Exit(1)
	}
}

func expect[T comparable](what string, found, wanted T) {
	if found != wanted {
		log.Output(2, fmt.Sprintf("%s is %v and should be %v", what, found, wanted))
		os.Exit(1)
	}
}

// Calls that answer with a status.
func status(client *rpc.Client, method string, args any) int {
	var reply StatusReply
	must(client.Call(method, args, &reply))
	return reply.Status
}

func get(client *rpc.Client, key string, holder string) GetReply {
	var reply GetReply
	must(client.Call("StorageRPC.Get", GetArgs{key, holder != "", leaseClient(holder, 7)}, &reply))
	return reply
}

func getList(client *rpc.Client, key string, holder string) GetListReply {
	var reply GetListReply
	must(client.Call("StorageRPC.GetList", &GetArgs{key, holder != "", leaseClient(holder, 7)}, &reply))
	return reply
}
