// Verifies a file of `outrider politeness --proof` with golang.org/x/mod.
package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type header struct {
	Head, Key string
	Host      *string
	Lines     int
}
type proven struct {
	Index  int64
	Line   string
	Proof  []string
	Robots *string
}
type request struct {
	Digest string
}

func fail(text string, err error) {
	fmt.Println("refused:", text, err)
	os.Exit(1)
}

func main() {
	file, err := os.Open(os.Args[1])
	if err != nil {
		fail("file", err)
	}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 8<<20)
	scanner.Scan()
	var first header
	if err := json.Unmarshal(scanner.Bytes(), &first); err != nil {
		fail("header", err)
	}
	if len(os.Args) > 2 {
		first.Key = os.Args[2]
	}
	verifier, err := note.NewVerifier(first.Key)
	if err != nil {
		fail("key", err)
	}
	opened, err := note.Open([]byte(first.Head), note.VerifierList(verifier))
	if err != nil {
		fail("head", err)
	}
	var name, root string
	var size int64
	if _, err := fmt.Sscanf(opened.Text, "%s\n%d\n%s\n", &name, &size, &root); err != nil {
		fail("text", err)
	}
	octets, err := base64.StdEncoding.DecodeString(root)
	if err != nil {
		fail("root", err)
	}
	var tree tlog.Hash
	copy(tree[:], octets)
	count, digests := 0, map[string]bool{}
	for scanner.Scan() {
		var line proven
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			fail("line", err)
		}
		if line.Robots != nil {
			octets, err := base64.StdEncoding.DecodeString(*line.Robots)
			if err != nil || !digests[fmt.Sprintf("sha256:%x", sha256.Sum256(octets))] {
				fail("robots.txt", err)
			}
			continue
		}
		var asked request
		if err := json.Unmarshal([]byte(line.Line), &asked); err != nil {
			fail("request", err)
		}
		digests[asked.Digest] = true
		var proof tlog.RecordProof
		for _, text := range line.Proof {
			octets, err := base64.StdEncoding.DecodeString(text)
			if err != nil {
				fail("proof", err)
			}
			var hash tlog.Hash
			copy(hash[:], octets)
			proof = append(proof, hash)
		}
		if err := tlog.CheckRecord(proof, size, tree, line.Index, tlog.RecordHash([]byte(line.Line))); err != nil {
			fail(fmt.Sprint("line ", line.Index), err)
		}
		count++
	}
	if count != first.Lines {
		fail("count", nil)
	}
	fmt.Println("accepted", count)
}
